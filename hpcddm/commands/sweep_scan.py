"""Scan of a sweep at one moment: its settings, the states of their units, and what to submit."""

from collections.abc import Collection
from dataclasses import dataclass, field

from hpcddm.config.site import Site
from hpcddm.errors import ConfigError
from hpcddm.errors.printing import echo
from hpcddm.evaluation.sweep_results.setting_results import Blocker, blocker_of
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.launch.array_items import ArrayItem
from hpcddm.launch.base import Job, Launcher
from hpcddm.launch.decision import Decision
from hpcddm.launch.redo import changed_ranges
from hpcddm.launch.submission import active_units, decide_units, submitted_jobs
from hpcddm.launch.sweep_runs import SweepRun, assign_owners, survey_sweep_runs
from hpcddm.loading.last_command import resubmit_step
from hpcddm.loading.load_sweep import Sweep
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import STAGES
from hpcddm.pipeline.unit_states import UnitStatus
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from hpcddm.runs.sweep_index import SweepIndex, read_index
from hpcddm.runs.unit_keys import REPORT

BEFORE_EVALUATION = ("hpcddm.stages.data.", "hpcddm.stages.training.")
"""Prefixes of the modules of the stages that a sweep takes from a finished run."""


@dataclass
class SweepScan:
    """State of a sweep at one moment: its settings, the states of their units, and the items to submit."""

    sweep_runs: list[SweepRun]
    index: SweepIndex
    states: dict[str, dict[str, UnitStatus]]
    active: dict[str, Job]
    """Jobs in the queue, by the sweep's names of the units."""
    items: list[ArrayItem] = field(default_factory=list)
    """Items to run, each once, after its inputs."""
    decisions: dict[str, Decision] = field(default_factory=dict)
    recalled: dict[str, Job] = field(default_factory=dict)
    changed_ranges: set[str] = field(default_factory=set)
    complete: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    not_requested: set[str] = field(default_factory=set)
    """Names of missing units that no requested setting needs."""

    @property
    def blockers(self) -> dict[str, Blocker]:
        """Reasons why settings are not complete, by label."""
        blockers = {}
        for sweep_run in self.sweep_runs:
            states = self.states[sweep_run.label]
            if states[REPORT].state is not State.COMPLETE:
                jobs = {key: job.state for key in states if (job := self.active.get(sweep_run.name(key)))}
                blockers[sweep_run.label] = blocker_of(states, sweep_run.run, jobs)
        return blockers


def scan_sweep(
    definition: Sweep,
    sweep_runs: list[SweepRun],
    home: RunDir,
    launcher: Launcher,
    is_final: bool = True,
    requested: Collection[str] | None = None,
) -> SweepScan:
    """Read all settings and select the units to submit; `is_final` is False if nothing will be submitted.

    asked: labels of the settings whose units are submitted, None for all.
    Raises `ConfigError` over settings that changed, `UserError` when `is_final` and the scheduler does not answer.
    """
    # Read the queue first: a unit that leaves it afterwards already has its manifest when we look.
    active = active_units(home, launcher) if is_final else launcher.states(submitted_jobs(home, launcher.site))
    if active is None:
        echo("note: the scheduler does not answer; states are from the files alone")
        active = {}
    index = read_index(home)
    if index.name not in ("", definition.name) or home.experiment.exists():
        what = "a run" if home.experiment.exists() else f"the sweep '{index.name}'"
        raise ConfigError(f"--dir {home.root}: contains {what}; choose another folder, or continue there")
    index.name, index.current = definition.name, [sweep_run.label for sweep_run in sweep_runs]
    index.settings |= definition.settings
    assign_owners(sweep_runs, index)
    scan = SweepScan(sweep_runs, index, survey_sweep_runs(sweep_runs), active)
    named: set[str] = set()
    for sweep_run in sweep_runs:
        states = scan.states[sweep_run.label]
        own_jobs = {key: active[sweep_run.name(key)] for key in sweep_run.owners if sweep_run.name(key) in active}
        changed = changed_ranges(sweep_run.experiment, sweep_run.run, states, own_jobs)
        _refuse_changes([status for key, status in states.items() if key not in changed], sweep_run, launcher.site)
        decision = decide_units(sweep_run.experiment, sweep_run.run, launcher, active=own_jobs, states=states)
        scan.decisions[sweep_run.label] = decision
        scan.changed_ranges |= {sweep_run.name(key) for key in decision.changed_ranges}
        scan.complete |= {sweep_run.name(key) for key in decision.complete}
        scan.absent |= {sweep_run.name(key) for key in (*decision.elsewhere, *decision.blocked, *decision.refused)}
        scan.recalled |= {job.id: job for job in decision.recalled}
        if sweep_run.finished:
            _refuse_unfinished(decision.to_run, sweep_run.finished)
        new = [unit for unit in decision.to_run if sweep_run.name(unit.key) not in named]
        if requested is not None and sweep_run.label not in requested:
            scan.not_requested |= {sweep_run.name(unit.key) for unit in new}
            continue
        named |= {sweep_run.name(unit.key) for unit in new}
        # All runs of a sweep are in one folder, so the relative path to the images is the same.
        experiment = with_relative_paths(sweep_run.experiment, sweep_run.run)
        for unit in new:
            needs = tuple(map(sweep_run.name, unit.inputs))
            scan.items.append(ArrayItem(sweep_run.owner(unit.key), unit, experiment, sweep_run.name(unit.key), needs))
    scan.not_requested -= named
    return scan


def _refuse_unfinished(to_run: list[PlannedUnit], run: RunDir) -> None:
    missing = [unit.key for unit in to_run if type(STAGES[unit.stage]).__module__.startswith(BEFORE_EVALUATION)]
    if missing:
        raise ConfigError(str(resubmit_step(run, f"{run.root}: {missing[0]} is not complete: complete the run first")))


def _refuse_changes(states: list[UnitStatus], sweep_run: SweepRun, site: Site) -> None:
    for status in states:
        if status.state is State.STALE and status.unit.site in (None, site.name):
            change = f"{status.key} was {status.reason}"
            raise ConfigError(f"setting {sweep_run.label}: {change}; go back to those, or take another --dir")
