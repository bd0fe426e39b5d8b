"""Costs of every attempt, and the wasted share of each."""

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcddm.jobs.attempt_records import AttemptRecord, read_records
from hpcddm.jobs.outcome import Outcome
from hpcddm.launch.journal_dirs import submissions_of
from hpcddm.launch.slurm.sacct import Execution
from hpcddm.runs.job import JobId
from hpcddm.runs.run_dir import RunDir

MATCH_SECONDS = 600
"""Seconds that the clocks of a node and of the accounting may be apart."""


@dataclass(frozen=True)
class JobCost:
    """One execution of one unit's job. The names are keys of `cost --json`."""

    unit: str
    attempt: int | None
    """Number of the attempt; None for a job that ended before Python began."""
    job: JobId | None
    started: float | None
    ended: float | None
    """Time of its end; None while it runs, and where unknown."""
    seconds: float
    cpus: int
    gpus: int
    wasted: float
    """Share of its work that was repeated or led to nothing, from 0 to 1."""
    source: str
    """'sacct' or 'records'."""
    is_estimate: bool
    """True where its end was not recorded."""
    ending: str
    """End in one word: running, complete, requeue, failed, ..."""

    @property
    def cpu_hours(self) -> float:
        """Allocated CPUs times hours."""
        return self.cpus * self.seconds / 3600

    @property
    def gpu_hours(self) -> float:
        """Allocated GPUs times hours."""
        return self.gpus * self.seconds / 3600


def list_job_costs(run: RunDir, executions: list[Execution]) -> list[JobCost]:
    """List the costs of every attempt at every unit, and of executions in sacct without an attempt, oldest first."""
    units = {submission.uuid: submission.units for submission in submissions_of(run)}
    by_unit: dict[str, list[Execution]] = defaultdict(list)
    costs = []
    tried = {key: read_records(run.logs(key)) for key in units_with_logs(run)}
    jobs = {(record.job, record.token): key for key, attempts in tried.items() for record in attempts if record.job}
    for execution in executions:
        if (key := jobs.get((execution.job, execution.token)) or _unit_of(execution, units)) and _is_own(run, key):
            by_unit[key].append(execution)
    for key in dict.fromkeys([*tried, *by_unit]):
        costs += _unit(key, tried.get(key, []), by_unit[key])
    return costs


def units_with_logs(run: RunDir) -> list[str]:
    """List the units that have attempts, in order."""
    folders = {path.parent for path in (run.root / "logs").glob("*/*/attempt-*")}
    keys = (str(Path(*folder.parts[-2:])) for folder in folders)
    return sorted(key for key in keys if _is_own(run, key))


def _is_own(run: RunDir, key: str) -> bool:
    """Tell if the run itself makes the unit; a unit that settings of a sweep share is counted where it is made."""
    logs = run.logs(key)
    return key.count("/") == 1 and not (logs.is_symlink() or logs.parent.is_symlink())


def _unit_of(execution: Execution, units: dict[str, list[str]]) -> str | None:
    element = execution.job.array_index
    keys = units.get(execution.token, [])
    return keys[int(element)] if element.isdecimal() and int(element) < len(keys) else None


def _unit(key: str, tried: list[AttemptRecord], executions: list[Execution]) -> list[JobCost]:
    unmatched = list(executions)
    costs = []
    for place, record in enumerate(tried):
        if match := _match(record, unmatched):
            unmatched.remove(match)
        later = tried[place + 1 :]
        # A heartbeat stays fresh for a while; what another attempt has followed is over.
        is_running = not later and record.is_running
        wasted = 0.0 if is_running else _wasted(record, later)
        ending = "running" if is_running else str(record.decision or record.outcome or "no word")
        cost = _by_records(key, record, wasted, ending)
        if match:
            gpus = cost.gpus if match.gpus is None else match.gpus
            cost = replace(cost, cpus=match.cpus or cost.cpus, gpus=gpus, **_times(match))
        costs.append(cost)
    costs += [_before_python(key, execution) for execution in unmatched]
    return sorted(costs, key=lambda job_cost: job_cost.started or 0.0)


def _match(record: AttemptRecord, executions: list[Execution]) -> Execution | None:
    """Find the execution of the same element that started nearest to the attempt: a requeue keeps the id."""
    candidates = [one for one in executions if one.job == record.job and one.token == record.token]
    started = record.started
    if not candidates or started is None:
        return None
    nearest = min(candidates, key=lambda execution: abs(execution.started - started))
    return nearest if abs(nearest.started - started) < MATCH_SECONDS else None


def _by_records(key: str, record: AttemptRecord, wasted: float, ending: str) -> JobCost:
    is_running = ending == "running"
    last = record.stopped or (record.beat.time if record.beat else record.started)
    end = time.time() if is_running else last
    # The batch script's word counts; without a queue there is none, and rank 0 has the last one.
    is_recorded = bool(record.verdict) or (bool(record.ended) and record.job is None)
    return JobCost(
        unit=key,
        attempt=record.number,
        job=record.job,
        started=record.started,
        ended=None if is_running else last,
        seconds=max(end - record.started, 0.0) if record.started and end else 0.0,
        cpus=record.owner.get("cpus", 0),
        gpus=record.owner.get("gpus", 0),
        wasted=wasted,
        source="records",
        is_estimate=not (is_recorded or is_running) or record.started is None,
        ending=ending,
    )


def _before_python(key: str, execution: Execution) -> JobCost:
    is_running = execution.ended is None
    return JobCost(
        unit=key,
        attempt=None,
        job=execution.job,
        cpus=execution.cpus,
        gpus=execution.gpus or 0,
        wasted=0.0 if is_running else 1.0,
        ending="running" if is_running else f"{execution.state.lower()} before Python",
        **_times(execution),
    )


def _times(execution: Execution) -> dict[str, Any]:
    """Return what sacct knows better than the run's own records."""
    times = {"started": execution.started, "ended": execution.ended, "seconds": execution.seconds}
    return times | {"source": "sacct", "is_estimate": False}


def _wasted(record: AttemptRecord, later: list[AttemptRecord]) -> float:
    """Compute the share of the images that a later attempt makes again; 1 where the attempt had no result."""
    if record.ended_well:
        return 1.0 if record.outcome == Outcome.ALREADY_COMPLETE else 0.0
    first, last = record.begun.get("images"), record.images
    if first is None or last is None or last <= first:
        return 1.0
    following = [attempt.begun.get("images") for attempt in later]
    if (continued := next((images for images in following if images is not None), None)) is None:
        # No later attempt yet: the saved part will not be computed again.
        saved = [record.ended.get("images"), record.beat.saved_images if record.beat else None, first]
        continued = max(number for number in saved if number is not None)
    return min(max((last - continued) / (last - first), 0.0), 1.0)
