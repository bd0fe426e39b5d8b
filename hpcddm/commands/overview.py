"""State of a run at one moment, one row for each unit, for `hpcddm status` and its `--json`."""

import time
from dataclasses import dataclass, field, replace
from typing import Any

from hpcddm.commands.typed import repeated, step_again, stored
from hpcddm.commands.unit_rows import UNDER_WAY, UnitRow, row_of, with_causes
from hpcddm.commands.unit_steps import UnitSteps
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError, exit_codes
from hpcddm.errors.next_step import NextStep, step
from hpcddm.files import fresh
from hpcddm.launch.base import Job, bare_site, launcher_of
from hpcddm.launch.journal_dirs import journal_dirs, submissions_of
from hpcddm.launch.slurm.early_failures import early_ends
from hpcddm.launch.work_states import UnitObservation, WorkState, has_vanished, lacked_inputs
from hpcddm.pipeline.plan import PlannedUnit, needed_by, plan
from hpcddm.pipeline.unit_states import State, UnitStatus, activity, check_stale, survey
from hpcddm.runs.journal import Journal
from hpcddm.runs.layout import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import CONTINUATION, expert_key, experts_of
from hpcddm.runs.unit_settings import expert_training

NOT_BEGUN = (State.MISSING, State.OUTDATED, State.WAITING, WorkState.CANCELLED, WorkState.ELSEWHERE)
"""States of units that count for nothing where they come after the last stage that was asked for."""


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
    until: str | None = None
    """Last stage that was asked for; None for all."""
    requested: frozenset[str] = frozenset()
    """Units that were asked for, where `until` is a stage."""
    stale: tuple[str, ...] = ()
    """Stages that submit refuses to leave as they are."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the slowest running unit is complete, a lower bound while others wait; None where unknown."""
        observed = [row.seconds_left for row in self.rows if row.seconds_left is not None]
        return max(observed) if observed else None

    @property
    def exit_code(self) -> int:
        """Exit code of `wait` and `status --exit-code`: complete, silent, under way, or not going on by itself."""
        if {row.state for row in self.rows if not self._is_left_out(row)} == {State.COMPLETE}:
            return exit_codes.DONE
        if self.is_silent:
            return exit_codes.SILENT
        return exit_codes.UNDER_WAY if self._is_alive else exit_codes.NEEDS_ACTION

    @property
    def _is_alive(self) -> bool:
        """True where something goes on by itself."""
        states = {row.state for row in self.rows}
        # A state that is none of ours is Slurm's own word for a job that it still has.
        return self.is_continued or bool(states & UNDER_WAY) or not states <= {*State, *WorkState}

    def _is_left_out(self, row: UnitRow) -> bool:
        """Tell if a unit comes after the last stage that was asked for, and nothing has become of it."""
        return self.until is not None and row.unit not in self.requested and row.state in NOT_BEGUN

    def count(self, state: str) -> int:
        """Count the units in a state."""
        return sum(row.state == state for row in self.rows)

    @property
    def is_stopped_at_stage(self) -> bool:
        """True where all that was asked for is complete, and later stages were not asked for."""
        return self.exit_code == exit_codes.DONE and any(row.state != State.COMPLETE for row in self.rows)

    def next_step(self) -> NextStep:
        """Return the next command for the run as a whole."""
        if self.refusal:
            return NextStep(repeated(self.run, self.stale), self.refusal)
        if self.is_stopped_at_stage:
            reason = f"complete up to {self.until}, the last stage that was asked for"
            return NextStep(repeated(self.run, is_whole=True), reason)
        if self.exit_code == exit_codes.DONE:
            return NextStep(reason=f"complete: {self.run.root}/report/index.html")
        # What this site can mend comes before what another one has to bring.
        rows = [row for row in self.rows if not self._is_left_out(row)]
        here = [row.next for row in rows if row.next.commands and row.state != WorkState.ELSEWHERE]
        if here:
            return here[0]
        exchange = [*self._handover(), *self._fetching([row for row in rows if row.next.commands])]
        if not exchange:
            return self._watching()
        following: NextStep | None = None
        for one in reversed([*([self._waiting()] if self._is_alive else []), *exchange]):
            following = replace(one, then=following)
        return following or self._watching()

    def _handover(self) -> list[NextStep]:
        """Return the command that packs what other sites read; none for nothing."""
        keys = list(dict.fromkeys(key for units in self.for_others.values() for key in units))
        folders = [str(self.run.unit(key).relative_to(self.run.root)) for key in keys]
        archive = f"for-{'-'.join(self.for_others)}.tar"
        are_made = all(row.state == State.COMPLETE for row in self.rows if row.unit in keys)
        reason = "" if are_made else "when they are complete, "
        reason += f"hand over {', '.join(keys)} to site {' and '.join(self.for_others)}"
        return [step("tar", "-C", self.run.root, "-cf", archive, *folders, reason=reason)] if keys else []

    def _fetching(self, rows: list[UnitRow]) -> list[NextStep]:
        """Return the step after units of other sites were copied here; none for no such units."""
        sites: dict[str | None, list[str]] = {}
        for row in rows:
            sites.setdefault(row.site, []).append(row.unit)
        copies = [f"{', '.join(keys)} of site {site}" for site, keys in sites.items()]
        return [replace(rows[0].next, reason=f"copy {' and '.join(copies)} into {self.run.root}")] if rows else []

    def _watching(self) -> NextStep:
        """Return the command that shows what goes on."""
        running = [row.unit for row in self.rows if row.state in (WorkState.RUNNING, WorkState.STOPPING)]
        if running:
            return step("hpcddm", "logs", self.run.root, running[0], "--follow", reason="under way")
        return self._waiting() if self._is_alive else step_again(self.run)

    def _waiting(self) -> NextStep:
        return step("hpcddm", "wait", self.run.root, reason="under way")

    def without_premature_steps(self) -> list[UnitRow]:
        """Return the rows without steps for what has not begun, while jobs go on that do it or that come before it."""
        idle = (State.MISSING, State.OUTDATED)
        return [
            replace(row, next=NextStep()) if self._is_left_out(row) or (self._is_alive and row.state in idle) else row
            for row in self.rows
        ]

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
            "next": self.next_step().line,
            "units": [row.as_json() for row in self.rows],
        }


def scan_run(run: RunDir, queue: Queue) -> Overview:
    """Read the run; `queue` must be older than the reading: a unit that has left it has its manifest by then."""
    experiment = stored_experiment(run)
    submissions = submissions_of(run)
    states = survey(plan(experiment), run)
    sites = {submission.site for submission in submissions}
    is_stopping = any(fresh.exists(home.stop) for home in journal_dirs(run))
    rows, vanished, waiting, steps = [], [], set(), UnitSteps(run, sites)
    for key, status in states.items():
        unit_submissions = [submission for submission in submissions if key in submission.units]
        is_silent = queue.jobs is None and any(submission.scheduler != "local" for submission in unit_submissions)
        is_foreign = status.unit.site is not None and status.unit.site not in sites
        job = (queue.jobs or {}).get(key)
        observed = UnitObservation(
            status, activity(run, key), unit_submissions, job, is_silent, is_stopping, is_foreign
        )
        rows.append(row_of(observed, experiment, run, steps))
        vanished += [key] if has_vanished(observed) else []
        waiting |= {key} if rows[-1].state == WorkState.STOPPED and lacked_inputs(observed) else set()
    ends = early_ends(submissions, vanished)
    rows = [replace(row, reason=ends[row.unit].text) if row.unit in ends else row for row in rows]
    rows = with_causes(rows, states, waiting)
    own, foreign = _sides(states, sites)
    needed = {key for unit in own for key in unit.inputs}
    rows = [
        row if row.state != WorkState.ELSEWHERE or row.unit in needed else replace(row, next=NextStep()) for row in rows
    ]
    refusal, stale = _refusal(states, {None} | sites)
    typed = stored(run)
    until = typed.until if typed else None
    overview = Overview(
        run,
        rows,
        is_silent=queue.jobs is None,
        refusal=refusal,
        expert_images=_expert_images(rows, experiment),
        is_continued=CONTINUATION in (queue.jobs or {}),
        for_others=_read_by_others(states, sites, foreign),
        until=until,
        requested=frozenset(needed_by(until, (status.unit for status in states.values())) if until else ()),
        stale=stale,
    )
    return replace(overview, rows=overview.without_premature_steps())


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


def _expert_images(rows: list[UnitRow], experiment: Experiment) -> tuple[int, int]:
    goals = {expert_key(expert): expert_training(experiment, expert).images for expert in experts_of(experiment)}
    experts = [(row, goals[row.unit]) for row in rows if row.unit in goals]
    done = sum(goal if row.state == State.COMPLETE else min(row.done, goal) for row, goal in experts)
    return done, sum(goals.values())


def _refusal(states: dict[str, UnitStatus], sites: set[str | None]) -> tuple[str | None, tuple[str, ...]]:
    """Return the error that submit will raise about changed settings, None for none, and the stages that it names."""
    own = [status for status in states.values() if status.unit.site in sites]
    try:
        check_stale(own, set())
    except ConfigError as error:
        stale = dict.fromkeys(status.unit.stage for status in own if status.state is State.STALE)
        return f"submit will refuse: {error}", tuple(stale)
    return None, ()
