"""One row for each unit of a run, as `hpcddm status` shows it, and the next command for the unit."""

import math
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpcddm.collaboration.imported_experts import import_commands
from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Resources
from hpcddm.errors.next_step import NextStep, step, without_step
from hpcddm.errors.printing import printable
from hpcddm.files import nfs_reads
from hpcddm.launch.journal_dirs import journal_dirs
from hpcddm.launch.slurm.client import cluster_flag
from hpcddm.launch.unit_observation import UnitObservation, observed_progress, observed_state
from hpcddm.loading.last_command import repeat_commands, submitted_folder
from hpcddm.pipeline.state import ALIVE, BROKEN, ON_NODES, TO_RETRY, TO_SUBMIT, State
from hpcddm.pipeline.unit_graph import batch_size
from hpcddm.pipeline.unit_states import UnitStatus
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import is_sweep

Commands = tuple[tuple[object, ...], ...]
MAX_CAUSES = 3
"""Number of units that are named as the reason for which others cannot start."""


class UnitSteps:
    """Next steps for the units of one run; shared data are read once."""

    def __init__(self, run: RunDir, sites: Collection[str]) -> None:
        """Prepare steps; sites: names of the sites from which units of the run were submitted."""
        self._run, self._sites = run, sites
        self._again = repeat_commands(run)
        self._is_in_sweep = is_sweep(submitted_folder(run))
        stop = next((home.stop for home in journal_dirs(run) if nfs_reads.exists(home.stop)), None)
        self._remove_stop: Commands = (("rm", stop),) if stop else ()

    def next_step(self, observed: UnitObservation, state: State) -> NextStep:
        """Return the next command for one unit in a state, if there is one."""
        key, run = observed.status.key, self._run
        if state == State.HELD and observed.job:
            return step("scontrol", *cluster_flag(observed.job.id.cluster), "release", observed.job.id.number)
        if state == State.ELSEWHERE and (signed := import_commands(run, [key])):
            return NextStep((*signed, *self._again), f"fetch the bundle of {key} of site {observed.status.unit.site}")
        if state == State.ELSEWHERE:
            return NextStep(self._again, f"copy {key} of site {observed.status.unit.site} to {run.unit(key)}")
        if state == State.UNKNOWN and observed.is_scheduler_unreachable:
            return step("hpcddm", "status", run.root, reason="when the scheduler answers")
        if state in BROKEN and (observed.work.number > 0 or observed.newest is None or observed.newest.job is not None):
            return step("hpcddm", "logs", run.root, key, then=NextStep(self._retry(observed), "after fixing that"))
        if state in TO_RETRY:
            return NextStep(self._retry(observed))
        if state in TO_SUBMIT or state == State.DAMAGED:
            return NextStep((*self._remove_stop, *self._again))
        return NextStep()

    def _retry(self, observed: UnitObservation) -> Commands:
        """Return the commands that submit a unit again, with the memory that its last verdict advises."""
        if self._is_in_sweep:
            return (*self._remove_stop, *self._again)
        memory_gb = _advised_memory(observed)
        words = (observed.status.key, "--resource", f"memory_gb={memory_gb}") if memory_gb else ()
        site = ("--site", observed.newest.site) if observed.newest and len(self._sites) > 1 else ()
        return (*self._remove_stop, ("hpcddm", "retry", self._run.root, *words, *site))


def _advised_memory(observed: UnitObservation) -> int | None:
    """Return the memory in GB that the last verdict advises, if a site could ask for it."""
    memory_gb = observed.work.verdict.get("memory_gb")
    with suppress(ValueError):
        return None if memory_gb is None else Resources(memory_gb=memory_gb).memory_gb
    return None


@dataclass(frozen=True)
class UnitRow:
    """One unit; unknown values are None, or an empty text. The names are the keys of `status --json`."""

    unit: str
    """stage/unit."""
    state: State
    reason: str
    """Reason for the state, for the user."""
    next: NextStep
    """Next command; none when nothing is to be done about this unit. In JSON `then` is the one after it."""
    site: str | None
    """The site that the experiment gives it to."""
    job: str | None
    """Its element in the queue, such as '81235_3'; if it is in no queue, that of its last attempt."""
    cluster: str | None
    """The cluster of its newest job, where the site names clusters."""
    where: str
    """The node or nodes of a running unit."""
    attempts: int
    """The number of the last attempt."""
    done: int
    """Images seen by the last attempt that has seen any."""
    total: int
    step: int | None
    """Optimiser steps made, of units that train."""
    steps: int | None
    loss: float | None
    skipped: int
    """Steps that were skipped, because a gradient was not finite."""
    rate: float | None
    """Images per second of a running unit, since its attempt began."""
    images_per_second: float | None
    """Images per second of a running training, between the last two points of its loss curve."""
    data_wait: float | None
    """Share of the same time in which rank 0 waited for data."""
    tflops: float | None
    """10^12 floating-point operations per second of a running training, over the same time, of all ranks together."""
    memory_gib: float | None
    """Peak memory of rank 0 of a running training in GiB: of its GPU, or resident."""
    learning_rate: float | None
    gradient_norm: float | None
    """L2 norm of the gradient of the step that was logged last, before clipping."""
    seconds_left: float | None
    saved_images: int | None
    """Images seen by the newest training state."""
    saved_seconds: float | None
    """Age of the newest training state, in seconds."""
    silent_seconds: float | None
    """Seconds since the last heartbeat of a unit that is under way."""
    user: str
    """User who submitted it last; empty where unknown."""
    changes: list[str]
    """Differences in code and packages between the attempts that made it."""
    faulty_nodes: dict[str, str]
    """Nodes that ended its attempts since the last saved state, each with the reason."""

    def as_json(self) -> dict[str, Any]:
        """Return the unit's part of `--json`, in which numbers that are not finite are None, as JSON has none."""
        values = asdict(self) | {"next": self.next.line, "then": self.next.then.line if self.next.then else ""}
        return {key: None if isinstance(own, float) and not math.isfinite(own) else own for key, own in values.items()}


def make_row(observed: UnitObservation, experiment: Experiment, run: RunDir, steps: UnitSteps) -> UnitRow:
    """Return the row of a unit from its observation."""
    key, last, now = observed.status.key, observed.work, time.time()
    state, reason = observed_state(observed)
    if last.file_errors and state != State.COMPLETE:
        reason = "; ".join(filter(None, (without_step(reason), *last.file_errors)))
    progress = observed_progress(observed, run)
    done, total = (progress.done, progress.total) if progress else (0, 0)
    is_of_last = progress is not None and last.beat is not None and progress.time == last.beat.time
    is_running = state in (State.RUNNING, State.STOPPING) and is_of_last
    running_beat = progress if is_running else None
    batch = batch_size(experiment, key)
    figures = (progress.figures or {}) if progress else {}
    running_figures = figures if is_running else {}
    counts = total > 0 and batch > 0
    is_begun = state in ALIVE and observed.has_begun
    source = observed.job if observed.job and observed.job.nodes else last
    return UnitRow(
        unit=key,
        state=state,
        reason=reason,
        next=steps.next_step(observed, state),
        site=observed.status.unit.site,
        job=observed.job.id if observed.job else last.job,
        cluster=observed.newest.cluster if observed.newest else None,
        where=(source.nodes if state in ON_NODES else ""),
        attempts=last.number,
        done=done,
        total=total,
        step=done // batch if counts else None,
        steps=math.ceil(total / batch) if counts else None,
        **{key: figures.get(key) for key in ("loss", "learning_rate", "gradient_norm")},
        skipped=int(figures.get("skipped", 0)),
        rate=round(running_beat.rate, 1) if running_beat else None,
        **{key: running_figures.get(key) for key in ("images_per_second", "data_wait", "tflops", "memory_gib")},
        seconds_left=running_beat.seconds_left if running_beat else None,
        saved_images=progress.saved_images if progress else None,
        saved_seconds=round(now - progress.saved_time, 1) if progress and progress.saved_time else None,
        silent_seconds=round(now - last.beat.time, 1) if is_begun and last.beat else None,
        user=printable(observed.newest.user) if observed.newest else "",
        changes=last.changes,
        faulty_nodes=last.faulty if state != State.COMPLETE else {},
    )


def add_causes(rows: list[UnitRow], states: Mapping[str, UnitStatus], waiting: Collection[str]) -> list[UnitRow]:
    """Give units that lacked an input the reason that all of them have: the units that ended otherwise before them.

    waiting: units that left because an input was not complete.
    """
    state_of_unit = {row.unit: row.state for row in rows}
    causes: dict[str, list[str]] = {}
    for row in (row for row in rows if row.unit in waiting):
        missing = [key for key in states[row.unit].unit.inputs if state_of_unit[key] != State.COMPLETE]
        # Units follow their inputs.
        causes[row.unit] = list(dict.fromkeys(cause for key in missing for cause in causes.get(key, [key])))

    def reason(row: UnitRow) -> str:
        if not (keys := causes.get(row.unit)):
            return row.reason
        more = f" and {len(keys) - MAX_CAUSES} more" if len(keys) > MAX_CAUSES else ""
        return f"cannot start before {', '.join(f'{key} ({state_of_unit[key]})' for key in keys[:MAX_CAUSES])}{more}"

    return [replace(row, reason=reason(row)) for row in rows]
