"""State of a run at one moment, one row for each unit, for `hpcddm status` and its `--json`."""

import random
import time
from dataclasses import dataclass, field, replace
from typing import Any

from hpcddm.collaboration.imported_experts import bundle_commands, expert_origins, import_commands
from hpcddm.commands.unit_rows import UnitRow, UnitSteps, add_causes, make_row
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError, ExitCode
from hpcddm.errors.next_step import NextStep, step
from hpcddm.files import nfs_reads
from hpcddm.jobs.activity import read_activity
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.launch.base import Job, create_launcher, site_from_journal
from hpcddm.launch.journal_dirs import journal_dirs, submissions_of
from hpcddm.launch.slurm.early_failures import find_early_failures, printed_reason
from hpcddm.launch.unit_observation import UnitObservation, has_vanished, lacked_inputs
from hpcddm.loading.last_command import repeat_commands, resubmit_step, stored_command, submitted_folder
from hpcddm.pipeline.state import ALIVE, NOT_BEGUN, TO_SUBMIT, State
from hpcddm.pipeline.unit_graph import needed_by, plan_units
from hpcddm.pipeline.unit_states import UnitStatus, check_stale, survey_units
from hpcddm.runs import manifest
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.stored_results import class_names
from hpcddm.runs.unit_keys import CATALOG, CONTINUATION, all_experts, expert_key
from hpcddm.runs.unit_training import resolve_training

QUERY_SECONDS = 30
"""Least time in seconds between two queries to the scheduler, which serves all users."""


def jittered(seconds: float) -> float:
    """Lengthen a time at random by up to 20 percent, so that many users do not query at the same moment.

    Args:
        seconds: The time.
    """
    return seconds * random.uniform(1.0, 1.2)


@dataclass(frozen=True)
class QueueAnswer:
    """One answer of the scheduler; `jobs` is None when it did not answer, and empty when none was queried."""

    jobs: dict[str, Job] | None
    queried_at: float

    @property
    def is_old(self) -> bool:
        """True if the scheduler may be queried again."""
        return time.time() - self.queried_at > jittered(QUERY_SECONDS)

    @classmethod
    def query(cls, run: RunDir) -> "QueueAnswer":
        """Query all jobs of the run at once; this machine's own units are known by their heartbeats."""
        # A sweep's job that continues names no setting, but it may have units of this one to submit.
        every = [submission for home in journal_dirs(run) for submission in Journal(home.journal).submissions()]
        more = [submission for submission in every if CONTINUATION in submission.units]
        observed = {submission.uuid: submission for submission in (*more, *submissions_of(run))}
        queued = [submission for submission in observed.values() if submission.scheduler != "local"]
        if not queued:
            return cls({}, time.time())
        return cls(create_launcher(site_from_journal(queued[-1]), run).states(queued), time.time())


@dataclass(frozen=True)
class RunStatus:
    """Rows of a run, and values computed from all of them."""

    run: RunDir
    rows: list[UnitRow]
    is_scheduler_unreachable: bool
    """True where the scheduler did not answer."""
    refusal: str | None
    """Error that submit will raise about changed settings; None for none."""
    expert_images: tuple[int, int]
    """Images that all experts together have seen, and shall see."""
    is_continued: bool = False
    """True if a job in the queue will submit the units that did not fit in it."""
    read_by_other_sites: dict[str, list[str]] = field(default_factory=dict)
    """Units of this site that units of other sites read: name of the other site -> keys."""
    until: str | None = None
    """Last requested stage; None for all."""
    requested: frozenset[str] = frozenset()
    """Requested units, if `until` is a stage."""
    stale: tuple[str, ...] = ()
    """Stages that submit refuses to keep as they are."""
    class_names: list[str] = field(default_factory=list)
    """Names of the classes; their numbers if nothing names them, as before the catalog is complete."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the slowest running unit is complete, a lower bound while others wait; None where unknown."""
        observed = [row.seconds_left for row in self.rows if row.seconds_left is not None]
        return max(observed) if observed else None

    @property
    def exit_code(self) -> int:
        """Exit code of `wait` and `status --exit-code`: complete, silent, under way, or not going on by itself."""
        if {row.state for row in self.rows if not self._is_left_out(row)} == {State.COMPLETE}:
            return ExitCode.DONE
        if self.is_scheduler_unreachable:
            return ExitCode.SCHEDULER_UNREACHABLE
        return ExitCode.UNDER_WAY if self._is_alive else ExitCode.NEEDS_ACTION

    @property
    def _is_alive(self) -> bool:
        """True if some unit continues without a command."""
        return self.is_continued or any(row.state in ALIVE for row in self.rows)

    def _is_left_out(self, row: UnitRow) -> bool:
        """Return True if a unit comes after the last requested stage and has not begun."""
        return self.until is not None and row.unit not in self.requested and row.state in NOT_BEGUN

    def count(self, state: State) -> int:
        """Count the units in a state."""
        return sum(row.state == state for row in self.rows)

    @property
    def is_stopped_at_stage(self) -> bool:
        """True if all requested units are complete, and later stages were not requested."""
        return self.exit_code == ExitCode.DONE and any(row.state != State.COMPLETE for row in self.rows)

    def next_step(self) -> NextStep:
        """Return the next command for the run as a whole."""
        if self.refusal:
            return NextStep(repeat_commands(self.run, self.stale), self.refusal)
        if self.is_stopped_at_stage:
            reason = f"complete up to {self.until}, the last requested stage"
            return NextStep(repeat_commands(self.run, is_whole=True), reason)
        if self.exit_code == ExitCode.DONE:
            return NextStep(reason=f"complete: {self.run.root}/report/index.html")
        # Steps at this site come before steps at other sites.
        rows = [row for row in self.rows if not self._is_left_out(row)]
        if here := [row.next for row in rows if row.next.commands and row.state != State.ELSEWHERE]:
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
        keys = list(dict.fromkeys(key for units in self.read_by_other_sites.values() for key in units))
        folders = [str(self.run.unit(key).relative_to(self.run.root)) for key in keys]
        archive = f"for-{'-'.join(self.read_by_other_sites)}.tar"
        are_made = all(row.state == State.COMPLETE for row in self.rows if row.unit in keys)
        reason = "" if are_made else "when they are complete, "
        reason += f"hand over {', '.join(keys)} to site {' and '.join(self.read_by_other_sites)}"
        if signed := bundle_commands(self.run, keys):
            return [NextStep(signed, reason)]
        return [step("tar", "-C", self.run.root, "-cf", archive, *folders, reason=reason)] if keys else []

    def _fetching(self, rows: list[UnitRow]) -> list[NextStep]:
        """Return the step after units of other sites were copied here; none for no such units."""
        sites: dict[str | None, list[str]] = {}
        for row in rows:
            sites.setdefault(row.site, []).append(row.unit)
        copies = [f"{', '.join(keys)} of site {site}" for site, keys in sites.items()]
        if signed := import_commands(self.run, [row.unit for row in rows]):
            again = (words for words in rows[0].next.commands if words not in signed)
            return [NextStep((*signed, *again), f"fetch the bundles of {' and '.join(copies)}")]
        return [replace(rows[0].next, reason=f"copy {' and '.join(copies)} into {self.run.root}")] if rows else []

    def _watching(self) -> NextStep:
        """Return the command that shows the progress."""
        if running := [row.unit for row in self.rows if row.state in (State.RUNNING, State.STOPPING)]:
            return step("hpcddm", "logs", self.run.root, running[0], "--follow", reason="under way")
        return self._waiting() if self._is_alive else resubmit_step(self.run)

    def _waiting(self) -> NextStep:
        return step("hpcddm", "wait", self.run.root, reason="under way")

    def without_premature_steps(self) -> list[UnitRow]:
        """Return the rows, without steps for units that have not begun while jobs of theirs or before them run."""
        return [
            replace(row, next=NextStep())
            if self._is_left_out(row) or (self._is_alive and row.state in TO_SUBMIT)
            else row
            for row in self.rows
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the content of `--json`; later versions may add keys and never change one."""
        done, total = self.expert_images
        following = self.next_step()
        return {
            "run": str(self.run.root),
            "queue": "silent" if self.is_scheduler_unreachable else "ok",
            "complete": self.count(State.COMPLETE),
            "expert_images": done,
            "expert_images_total": total,
            "seconds_left": self.seconds_left,
            "next": following.line,
            "then": following.then.line if following.then else "",
            "units": [row.as_json() for row in self.rows],
        }


def scan_run(run: RunDir, queue: QueueAnswer) -> RunStatus:
    """Read the run; `queue` must be older than the reading: a unit that has left it has its manifest by then."""
    experiment = stored_experiment(run)
    submissions = submissions_of(run)
    states = survey_units(plan_units(experiment), run)
    sites = {submission.site for submission in submissions}
    is_stopping = any(nfs_reads.exists(home.stop) for home in journal_dirs(run))
    rows, vanished, waiting, steps = [], [], set(), UnitSteps(run, sites)
    for key, status in states.items():
        own = [submission for submission in submissions if key in submission.units]
        is_silent = queue.jobs is None and any(submission.scheduler != "local" for submission in own)
        is_foreign = status.unit.site is not None and status.unit.site not in sites
        job = (queue.jobs or {}).get(key)
        observed = UnitObservation(status, read_activity(run, key), own, job, is_silent, is_stopping, is_foreign)
        rows.append(make_row(observed, experiment, run, steps))
        vanished += [key] if has_vanished(observed) else []
        waiting |= {key} if rows[-1].state == State.STOPPED and lacked_inputs(observed) else set()
    reasons = expert_origins(run, [row.unit for row in rows if row.state == State.COMPLETE])
    home = submitted_folder(run)
    early = find_early_failures(submissions, vanished)
    reasons |= {key: printed_reason(end, home) or end.text for key, end in early.items()}
    rows = [replace(row, reason=reasons.get(row.unit, row.reason)) for row in rows]
    rows = add_causes(rows, states, waiting)
    open_units = [status.unit for status in states.values() if status.state is not State.COMPLETE]
    read = {key for unit in open_units if unit.site in (None, *sites) for key in unit.inputs}
    rows = [row if row.state != State.ELSEWHERE or row.unit in read else replace(row, next=NextStep()) for row in rows]
    refusal, stale = _refusal(states, {None} | sites)
    typed, catalog = stored_command(run), manifest.read_if_usable(run.unit(CATALOG))
    until = typed.until if typed else None
    overview = RunStatus(
        run,
        rows,
        is_scheduler_unreachable=queue.jobs is None,
        refusal=refusal,
        expert_images=_expert_images(rows, experiment),
        is_continued=CONTINUATION in (queue.jobs or {}),
        read_by_other_sites=_read_by_others(open_units, states, sites),
        until=until,
        requested=frozenset(needed_by(until, (status.unit for status in states.values())) if until else ()),
        stale=stale,
        class_names=class_names(experiment, {CATALOG: catalog} if catalog else {}),
    )
    return replace(overview, rows=overview.without_premature_steps())


def _read_by_others(units: list[PlannedUnit], states: dict[str, UnitStatus], sites: set[str]) -> dict[str, list[str]]:
    """List the units of this site that open units of other sites read, by the other site."""
    read: dict[str, list[str]] = {}
    for unit in (unit for unit in units if unit.site not in (None, *sites)):
        # Each site probes experts itself.
        keys = [key for key in unit.inputs if states[key].unit.site in sites and key not in unit.gates.values()]
        read[str(unit.site)] = list(dict.fromkeys([*read.get(str(unit.site), []), *keys]))
    return {site: keys for site, keys in read.items() if keys}


def _expert_images(rows: list[UnitRow], experiment: Experiment) -> tuple[int, int]:
    goals = {key: resolve_training(experiment, key).settings.images for key in map(expert_key, all_experts(experiment))}
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
