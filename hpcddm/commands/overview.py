"""State of a run at one moment, one row for each unit, for `hpcddm status` and its `--json`."""

import math
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hpcddm import exit_codes
from hpcddm.config import Experiment
from hpcddm.errors import ConfigError
from hpcddm.launch.base import Job, bare_site, launcher_of
from hpcddm.launch.client import on
from hpcddm.launch.early_ends import early_ends
from hpcddm.launch.journal_dirs import journal_dirs, submissions_of
from hpcddm.launch.watching import UnitObservation, WorkState, has_vanished, lacked_inputs, progress_of, state_of
from hpcddm.loading import is_sweep, stored_experiment
from hpcddm.pipeline.keys import CONTINUATION, expert_key
from hpcddm.pipeline.lists import experts_of
from hpcddm.pipeline.plan import PlannedUnit, batch_of, plan
from hpcddm.pipeline.trainings import expert_training
from hpcddm.printing import printable, quoted
from hpcddm.rundir import fresh
from hpcddm.rundir.journal import Journal, Submission
from hpcddm.rundir.layout import RunDir
from hpcddm.site import Resources
from hpcddm.unit_states import State, UnitStatus, activity, check_stale, survey

MOST_CAUSES = 3
"""Number of units that are named as the reason for which others cannot start."""
UNDER_WAY = {WorkState.RUNNING, WorkState.STARTING, WorkState.STOPPING, WorkState.PENDING, WorkState.REQUEUED}


@dataclass(frozen=True)
class UnitRow:
    """One unit; unknown values are None, or an empty text. The names are the keys of `status --json`."""

    unit: str
    """stage/unit."""
    state: str
    """One word of `unit_states.State` or of `launch.watching.WorkState`; rarely Slurm's own, such as 'suspended'."""
    reason: str
    """Reason for the state, for the user."""
    next: str
    """Next command, or thing to do; empty when nothing is to be done about this unit."""
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
    """Images seen, of the last attempt that saw any."""
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


@dataclass(frozen=True)
class Queue:
    """One answer of the scheduler; `jobs` is None when it did not answer, and empty when none was queried."""

    jobs: dict[str, Job] | None
    queried_at: float

    @classmethod
    def query(cls, run: RunDir) -> "Queue":
        """Query all jobs of the run at once; this machine's own units are known by their heartbeats."""
        # A sweep's job that continues names no setting, but it may have units of this one to submit.
        more = [
            submission
            for home in journal_dirs(run)
            for submission in Journal(home.journal).submissions()
            if CONTINUATION in submission.units
        ]
        observed = {submission.uuid: submission for submission in (*more, *submissions_of(run))}
        queued = [submission for submission in observed.values() if submission.scheduler != "local"]
        if not queued:
            return cls({}, time.time())
        return cls(launcher_of(bare_site(queued[-1]), run).states(queued), time.time())


@dataclass(frozen=True)
class Overview:
    """Rows of a run, and values computed from all of them."""

    run: RunDir
    rows: list[UnitRow]
    is_silent: bool
    """True where the scheduler did not answer."""
    refusal: str | None
    """Error that submit will raise about changed settings; None for none."""
    expert_images: tuple[int, int]
    """Images that all experts together have seen, and shall see."""
    is_continued: bool = False
    """True where a job in the queue submits what had no room in it."""
    for_others: dict[str, list[str]] = field(default_factory=dict)
    """Units of this site that units of other sites read: name of the other site -> keys."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the slowest running unit is complete, a lower bound while others wait; None where unknown."""
        observed = [row.seconds_left for row in self.rows if row.seconds_left is not None]
        return max(observed) if observed else None

    @property
    def exit_code(self) -> int:
        """Exit code of `wait` and `status --exit-code`: complete, silent, under way, or not going on by itself."""
        states = {row.state for row in self.rows}
        if states == {State.COMPLETE}:
            return exit_codes.DONE
        if self.is_silent:
            return exit_codes.SILENT
        # A state that is none of ours is Slurm's own word for a job that it still has.
        is_alive = self.is_continued or bool(states & UNDER_WAY) or not states <= {*State, *WorkState}
        return exit_codes.UNDER_WAY if is_alive else exit_codes.NEEDS_ACTION

    def count(self, state: str) -> int:
        """Count the units in a state."""
        return sum(row.state == state for row in self.rows)

    def next_step(self) -> str:
        """Return the next command, or thing to do, for the run as a whole."""
        root, states = self.run.root, {row.state for row in self.rows}
        if self.refusal:
            return self.refusal
        if states == {State.COMPLETE}:
            return f"complete; look at {root}/report/index.html"
        # What this site can mend comes before what another one has to bring.
        hints = _hints(row for row in self.rows if row.state != WorkState.ELSEWHERE)
        if hints:
            return hints
        exchange = "; then ".join(filter(None, (self._handover(), _hints(self.rows))))
        if states & UNDER_WAY:
            look = f"under way; look at: hpcddm logs {quoted(root)} STAGE/UNIT --follow"
            return f"under way, wait: hpcddm wait {quoted(root)}; then {exchange}" if exchange else look
        return exchange or "submit again to run what is missing"

    def _handover(self) -> str:
        """Return the command that packs what other sites read; '' for nothing."""
        keys = list(dict.fromkeys(key for units in self.for_others.values() for key in units))
        folders = [str(self.run.unit(key).relative_to(self.run.root)) for key in keys]
        to = " and ".join(self.for_others)
        pack = (
            f"tar -C {quoted(self.run.root)} -cf for-{'-'.join(self.for_others)}.tar {' '.join(map(quoted, folders))}"
        )
        return f"hand over {', '.join(keys)} to site {to}: {pack}" if keys else ""

    def as_json(self) -> dict[str, Any]:
        """Return the content of `--json`; later versions may add keys and never change one."""
        done, total = self.expert_images
        return {
            "run": str(self.run.root),
            "queue": "silent" if self.is_silent else "ok",
            "complete": self.count(State.COMPLETE),
            "expert_images": done,
            "expert_images_total": total,
            "seconds_left": self.seconds_left,
            "next": self.next_step(),
            "units": [_finite(asdict(row)) for row in self.rows],
        }


def _hints(rows: Iterable[UnitRow]) -> str:
    """Return the first command, or thing to do, of these units, and how many more there are; '' for none."""
    hints = list(dict.fromkeys(row.next for row in rows if row.next))
    more = f" (and {len(hints) - 1} more, above)" if len(hints) > 1 else ""
    return f"{hints[0]}{more}" if hints else ""


def scan_run(run: RunDir, queue: Queue) -> Overview:
    """Read the run; `queue` must be older than the reading: a unit that has left it has its manifest by then."""
    experiment = stored_experiment(run)
    submissions = submissions_of(run)
    states = survey(plan(experiment), run)
    sites = {submission.site for submission in submissions}
    is_stopping = any(fresh.exists(home.stop) for home in journal_dirs(run))
    rows, vanished, waiting = [], [], set()
    for key, status in states.items():
        unit_submissions = [submission for submission in submissions if key in submission.units]
        is_silent = queue.jobs is None and any(submission.scheduler != "local" for submission in unit_submissions)
        is_foreign = status.unit.site is not None and status.unit.site not in sites
        job = (queue.jobs or {}).get(key)
        observed = UnitObservation(
            status, activity(run, key), unit_submissions, job, is_silent, is_stopping, is_foreign
        )
        rows.append(_row(observed, experiment, run))
        vanished += [key] if has_vanished(observed) else []
        waiting |= {key} if rows[-1].state == WorkState.STOPPED and lacked_inputs(observed) else set()
    ends = early_ends(submissions, vanished)
    rows = [replace(row, reason=ends[row.unit].text) if row.unit in ends else row for row in rows]
    rows = _with_causes(rows, states, waiting)
    rows = _without_hints_while_driven(rows, submissions)
    own, foreign = _sides(states, sites)
    needed = {key for unit in own for key in unit.inputs}
    rows = [row if row.state != WorkState.ELSEWHERE or row.unit in needed else replace(row, next="") for row in rows]
    refusal = _refusal(states, {None} | sites)
    is_continued = CONTINUATION in (queue.jobs or {})
    images = _expert_images(rows, experiment)
    for_others = _read_by_others(states, sites, foreign)
    return Overview(run, rows, queue.jobs is None, refusal, images, is_continued, for_others)


def _sides(states: dict[str, UnitStatus], sites: set[str]) -> tuple[list[PlannedUnit], list[PlannedUnit]]:
    """Return the units that are not complete here: those of this site, and those of others."""
    open_units = [status.unit for status in states.values() if status.state is not State.COMPLETE]
    own = [unit for unit in open_units if unit.site in (None, *sites)]
    return own, [unit for unit in open_units if unit not in own]


def _read_by_others(states: dict[str, UnitStatus], sites: set[str], foreign: list[PlannedUnit]) -> dict[str, list[str]]:
    """List the units of this site that those of other sites read, by the other site."""
    read: dict[str, list[str]] = {}
    for unit in foreign:
        keys = [key for key in unit.inputs if states[key].unit.site in sites]
        read[str(unit.site)] = list(dict.fromkeys([*read.get(str(unit.site), []), *keys]))
    return {site: keys for site, keys in read.items() if keys}


def _row(observed: UnitObservation, experiment: Experiment, run: RunDir) -> UnitRow:
    key, work = observed.status.key, observed.work
    state, reason = state_of(observed)
    if work.last and work.last.faults and state != State.COMPLETE:
        reason = "; ".join(filter(None, (reason, *work.last.faults)))
    last, now = work.last, time.time()
    progress = progress_of(observed, run)
    beat, done, total, saved = progress.beat, progress.done, progress.total, progress.saved
    is_running = state in (WorkState.RUNNING, WorkState.STOPPING) and last is not None and beat is last.beat
    running_beat = beat if is_running else None
    batch = batch_of(experiment, key)
    figures = (beat.figures or {}) if beat else {}
    running_figures = figures if is_running else {}
    counts = total > 0 and batch > 0
    is_begun = state in UNDER_WAY and observed.has_begun
    return UnitRow(
        unit=key,
        state=state,
        reason=reason,
        next=_advice(observed, state, run),
        site=observed.status.unit.site,
        job=observed.job.id if observed.job else last.job if last else None,
        cluster=observed.newest.cluster if observed.newest else None,
        where=_where(observed, state),
        attempts=work.attempts,
        done=done,
        total=total,
        step=done // batch if counts else None,
        steps=math.ceil(total / batch) if counts else None,
        loss=figures.get("loss"),
        skipped=int(figures.get("skipped", 0)),
        rate=round(running_beat.rate, 1) if running_beat else None,
        images_per_second=running_figures.get("images_per_second"),
        data_wait=running_figures.get("data_wait"),
        tflops=running_figures.get("tflops"),
        memory_gib=running_figures.get("memory_gib"),
        learning_rate=figures.get("learning_rate"),
        gradient_norm=figures.get("gradient_norm"),
        seconds_left=running_beat.seconds_left if running_beat else None,
        saved_images=saved[0] if saved else None,
        saved_seconds=round(now - saved[1], 1) if saved else None,
        silent_seconds=round(now - last.beat.time, 1) if is_begun and last and last.beat else None,
        user=printable(observed.newest.user) if observed.newest else "",
        changes=last.changes if last else [],
        faulty_nodes=work.faulty if state != State.COMPLETE else {},
    )


def _where(observed: UnitObservation, state: str) -> str:
    if state not in (WorkState.RUNNING, WorkState.STOPPING):
        return ""
    if observed.job and observed.job.detail:
        return observed.job.detail
    last = observed.work.last
    return last.nodes if last else ""


def _advice(observed: UnitObservation, state: str, run: RunDir) -> str:
    """Return the next command, or thing to do, for one unit; '' for none."""
    key, root = observed.status.key, run.root
    read = f"hpcddm logs {quoted(root)} {key}"
    in_sweep = is_sweep(RunDir(root.resolve().parent))
    submit = "the same hpcddm sweep again" if in_sweep else "submit again"
    stop = next((home.stop for home in journal_dirs(run) if fresh.exists(home.stop)), None)
    again = f"rm {quoted(stop)}, then {submit}" if stop else submit
    memory_gb = _advised_memory(observed)
    more = f" {key} --resource memory_gb={memory_gb}" if memory_gb else ""
    retry = submit if in_sweep else f"hpcddm retry {quoted(root)}{more}"
    site = observed.status.unit.site
    advice: dict[str, str] = {
        WorkState.HELD: " ".join(["scontrol", *on(observed.job.id.cluster), "release", observed.job.id.number])
        if observed.job
        else "",
        WorkState.FAILED: f"{read}   then: {retry}",
        WorkState.GAVE_UP: f"{read}   then: {retry}",
        WorkState.UNKNOWN: "look again when the scheduler answers" if observed.is_silent else f"{read}   then {submit}",
        WorkState.ELSEWHERE: f"copy {key} of site {site} to {run.unit(key)}, then {submit}",
    }
    needs_submit = (WorkState.CANCELLED, WorkState.STOPPED, State.MISSING, State.OUTDATED, State.DAMAGED)
    if more and state == WorkState.STOPPED and not in_sweep:
        return retry
    return again if state in needs_submit else advice.get(state, "")


def _advised_memory(observed: UnitObservation) -> int | None:
    """Return the memory in GB that the last verdict advises, if a site could ask for it."""
    memory_gb = observed.work.last.verdict.get("memory_gb") if observed.work.last else None
    try:
        return None if memory_gb is None else Resources(memory_gb=memory_gb).memory_gb
    except ValueError:
        return None


def _without_hints_while_driven(rows: list[UnitRow], submissions: list[Submission]) -> list[UnitRow]:
    """Remove the advice for units that have not begun while `submit` runs units on this machine: it starts them."""
    local = {key for submission in submissions if submission.scheduler == "local" for key in submission.units}
    if not any(row.unit in local and row.state in (WorkState.RUNNING, WorkState.STARTING) for row in rows):
        return rows
    idle = (State.MISSING, State.OUTDATED)
    return [replace(row, next="") if row.state in idle else row for row in rows]


def _with_causes(rows: list[UnitRow], states: Mapping[str, UnitStatus], waiting: Collection[str]) -> list[UnitRow]:
    """Give units that lacked an input the reason that all of them have: the units that ended otherwise before them.

    waiting: units that left because an input was not complete.
    """
    state_of_unit = {row.unit: row.state for row in rows}
    causes: dict[str, list[str]] = {}
    for row in (row for row in rows if row.unit in waiting):
        missing = [key for key in states[row.unit].unit.inputs if state_of_unit[key] != State.COMPLETE]
        # Units stand behind what they read.
        causes[row.unit] = list(dict.fromkeys(cause for key in missing for cause in causes.get(key, [key])))

    def reason(row: UnitRow) -> str:
        keys = causes.get(row.unit)
        if not keys:
            return row.reason
        more = f" and {len(keys) - MOST_CAUSES} more" if len(keys) > MOST_CAUSES else ""
        return f"cannot start before {', '.join(f'{key} ({state_of_unit[key]})' for key in keys[:MOST_CAUSES])}{more}"

    return [replace(row, reason=reason(row)) for row in rows]


def _expert_images(rows: list[UnitRow], experiment: Experiment) -> tuple[int, int]:
    goals = {expert_key(expert): expert_training(experiment, expert).images for expert in experts_of(experiment)}
    experts = [(row, goals[row.unit]) for row in rows if row.unit in goals]
    done = sum(goal if row.state == State.COMPLETE else min(row.done, goal) for row, goal in experts)
    return done, sum(goals.values())


def _refusal(states: dict[str, UnitStatus], sites: set[str | None]) -> str | None:
    try:
        check_stale([status for status in states.values() if status.unit.site in sites], set())
    except ConfigError as error:
        return f"submit will refuse: {error}"
    return None


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Replace non-finite numbers, such as the loss of a training that diverged, by None, which JSON can hold."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
