"""Next command for every unit of a run."""

from collections.abc import Collection

from hpcddm.collaboration.imported_experts import import_commands
from hpcddm.config.site import Resources
from hpcddm.errors.next_step import NextStep, step
from hpcddm.files import nfs_reads
from hpcddm.launch.journal_dirs import journal_dirs
from hpcddm.launch.slurm.client import cluster_flag
from hpcddm.launch.unit_observation import UnitObservation
from hpcddm.loading.last_command import repeat_commands, submitted_folder
from hpcddm.pipeline.state import BROKEN, TO_RETRY, TO_SUBMIT, State
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import is_sweep

Commands = tuple[tuple[object, ...], ...]


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
        has_log = observed.work.number > 0 or observed.newest is None or observed.newest.job is not None
        if state in BROKEN and has_log:
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
    try:
        return None if memory_gb is None else Resources(memory_gb=memory_gb).memory_gb
    except ValueError:
        return None
