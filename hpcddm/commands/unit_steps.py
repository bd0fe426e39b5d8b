"""Next command for every unit of a run."""

from collections.abc import Collection
from functools import cached_property

from hpcddm.commands.typed import home_of, repeated
from hpcddm.config.site import Resources
from hpcddm.errors.next_step import NextStep, step
from hpcddm.files import fresh
from hpcddm.launch.journal_dirs import journal_dirs
from hpcddm.launch.slurm.client import on
from hpcddm.launch.work_states import UnitObservation, WorkState
from hpcddm.pipeline.unit_states import State
from hpcddm.runs.layout import RunDir
from hpcddm.runs.stored_experiment import is_sweep

Commands = tuple[tuple[object, ...], ...]


class UnitSteps:
    """Steps for the units of one run; what they have in common is read once."""

    def __init__(self, run: RunDir, sites: Collection[str]) -> None:
        """Prepare steps; sites: names of the sites from which units of the run were submitted."""
        self._run, self._sites = run, sites

    @cached_property
    def _again(self) -> Commands:
        """Commands that submit what is missing."""
        return repeated(self._run)

    @cached_property
    def _is_in_sweep(self) -> bool:
        return is_sweep(home_of(self._run))

    @cached_property
    def _remove_stop(self) -> Commands:
        """Command that removes the file that stops the run; none where there is no such file."""
        stop = next((home.stop for home in journal_dirs(self._run) if fresh.exists(home.stop)), None)
        return (("rm", stop),) if stop else ()

    def of(self, observed: UnitObservation, state: str) -> NextStep:
        """Return the next command for one unit in a state, if there is one."""
        key, run = observed.status.key, self._run
        if state == WorkState.HELD and observed.job:
            return step("scontrol", *on(observed.job.id.cluster), "release", observed.job.id.number)
        if state == WorkState.ELSEWHERE:
            return NextStep(self._again, f"copy {key} of site {observed.status.unit.site} to {run.unit(key)}")
        if state == WorkState.UNKNOWN and observed.is_silent:
            return step("hpcddm", "status", run.root, reason="when the scheduler answers")
        if state in (WorkState.FAILED, WorkState.GAVE_UP, WorkState.UNKNOWN) and _has_log(observed):
            return step("hpcddm", "logs", run.root, key, then=NextStep(self._retry(observed), "when that is mended"))
        if state in (WorkState.CANCELLED, WorkState.STOPPED, WorkState.FAILED, WorkState.GAVE_UP, WorkState.UNKNOWN):
            return NextStep(self._retry(observed))
        if state in (State.MISSING, State.OUTDATED, State.DAMAGED):
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


def _has_log(observed: UnitObservation) -> bool:
    """Tell if there may be a log, of an attempt or of the scheduler."""
    return observed.work.attempts > 0 or observed.newest is None or observed.newest.job is not None


def _advised_memory(observed: UnitObservation) -> int | None:
    """Return the memory in GB that the last verdict advises, if a site could ask for it."""
    memory_gb = observed.work.last.verdict.get("memory_gb") if observed.work.last else None
    try:
        return None if memory_gb is None else Resources(memory_gb=memory_gb).memory_gb
    except ValueError:
        return None
