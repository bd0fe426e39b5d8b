"""Runs of a sweep: each setting is an ordinary run, and units that several have in common are made once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError
from hpcddm.files.atomic import digest
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.loading.load_sweep import Sweep
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import UnitStatus, determine_state, survey_units
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths
from hpcddm.runs.sweep_index import FINISHED_RUN, SweepIndex
from hpcddm.runs.unit_keys import stage_of


@dataclass(frozen=True)
class SweepRun:
    """Run of one setting: its units, their identities and their owners."""

    label: str
    run: RunDir
    experiment: Experiment
    units: list[PlannedUnit]
    identities: dict[str, str]
    owners: dict[str, str] = field(default_factory=dict)
    """Key of a unit -> label of the setting in whose run it is made, or `FINISHED_RUN`."""
    finished: RunDir | None = None
    """Finished run from which units are taken."""

    def name(self, key: str) -> str:
        """Return a unit's name in the sweep's journal: OWNER/KEY."""
        return f"{self.owners[key]}/{key}"

    def owner(self, key: str) -> RunDir:
        """Return the run in which a unit is made."""
        if self.finished and self.owners[key] == FINISHED_RUN:
            return self.finished
        return RunDir(self.run.root.parent / self.owners[key])


def sweep_runs_of(sweep: Sweep, home: RunDir) -> list[SweepRun]:
    """Plan the run of every setting, with the hash of its images.

    Raises `UserError` when images are missing.
    """
    contents: dict[str, str | None] = {}
    sweep_runs = []
    for label, experiment in sweep.experiments.items():
        run = RunDir(home.root / label)
        source = experiment.data.source.model_dump_json()
        experiment = with_content_hashes(experiment, sweep.run or run, contents.get(source))
        contents[source] = experiment.data.content_hash
        units = plan_units(experiment)
        sweep_runs.append(SweepRun(label, run, experiment, units, identity_hashes(units), finished=sweep.run))
    _refuse_homonyms(sweep_runs)
    return sweep_runs


def _refuse_homonyms(sweep_runs: Iterable[SweepRun]) -> None:
    """Refuse a name of extra experts with other samples: where all else is shared, so is the folder of the list.

    Raises `ConfigError` naming both settings.
    """
    first: dict[str, tuple[str, str | None]] = {}
    for sweep_run in sweep_runs:
        for extra in sweep_run.experiment.experts.extra:
            label, content = first.setdefault(extra.name, (sweep_run.label, extra.content_hash))
            if content != extra.content_hash:
                fault = f"experts.extra: {extra.name} has other samples in setting {label}"
                raise ConfigError(f"setting {sweep_run.label}: {fault}; give it another name")


def identity_hashes(units: Iterable[PlannedUnit]) -> dict[str, str]:
    """Hash for every unit all that determines its outputs, down to the images: units of equal hashes are the same work.

    The number of units in a stage is left out: what depends on it is among the settings under the fingerprint.
    """
    by_key: dict[str, str] = {}
    for unit in units:
        inputs = [by_key[key] for key in unit.inputs if unit.counts_in_fingerprint(key)]
        by_key[unit.key] = digest([unit.key, unit.fingerprint_settings, unit.site, unit.min_optional, inputs])[:24]
    return by_key


def assign_owners(sweep_runs: Iterable[SweepRun], index: SweepIndex) -> None:
    """Assign an owner to each unit: the first setting that has it; a run that already has a folder of it owns that.

    A sweep of a finished run takes from there the units that are complete.
    """
    sweep_runs = list(sweep_runs)
    finished = _finished_units(sweep_runs[0].finished)
    begun = {sweep_run.label: _begun_units(sweep_run) for sweep_run in sweep_runs}
    identities_of = {sweep_run.label: sweep_run.identities for sweep_run in sweep_runs} | {FINISHED_RUN: finished}
    for sweep_run in sweep_runs:
        for key in begun[sweep_run.label]:
            index.owners.setdefault(sweep_run.identities[key], sweep_run.label)
    for sweep_run in sweep_runs:
        for key, identity in sweep_run.identities.items():
            if key in begun[sweep_run.label]:
                sweep_run.owners[key] = sweep_run.label
            elif finished.get(key) == identity:
                sweep_run.owners[key] = FINISHED_RUN
            else:
                sweep_run.owners[key] = index.owners.setdefault(identity, sweep_run.label)
        _keep_together(sweep_run, identities_of, index)


def _finished_units(run: RunDir | None) -> dict[str, str]:
    """Return the identities of the complete units of a finished run, by key."""
    if run is None:
        return {}
    units = plan_units(with_absolute_paths(stored_experiment(run), run))
    states, identities = survey_units(units, run), identity_hashes(units)
    return {key: identity for key, identity in identities.items() if states[key].state is State.COMPLETE}


def _keep_together(sweep_run: SweepRun, identities: Mapping[str, Mapping[str, str]], index: SweepIndex) -> None:
    """Give a stage whose unit `all` has the folder of the whole stage one owner, which has the same units of it.

    identities: of the units of every setting, by its label.
    """
    for whole in [key for key in sweep_run.owners if key.endswith("/all")]:
        own = {key: identity for key, identity in sweep_run.identities.items() if stage_of(key) == stage_of(whole)}
        owner = sweep_run.owners[whole]
        if (there := identities.get(owner)) is None:
            # The owner was removed from the sweep's file: the index alone knows what it has.
            fits = all(sweep_run.owners[key] == owner for key in own)
        else:
            fits = all(there.get(key, identity) == identity for key, identity in own.items())
        if not fits:
            owner = index.owners.setdefault(digest(own), sweep_run.label)
        sweep_run.owners.update(dict.fromkeys(own, owner))


def _begun_units(sweep_run: SweepRun) -> set[str]:
    """Return the keys of the units with a folder, not a link, in the run itself."""
    if not sweep_run.run.root.is_dir():
        return set()
    folders = {key: sweep_run.run.unit(key) for key in sweep_run.identities}
    linked = {folder for folder in {folder.parent for folder in folders.values()} if folder.is_symlink()}
    return {key for key, own in folders.items() if own.parent not in linked and own.is_dir() and not own.is_symlink()}


def survey_sweep_runs(sweep_runs: Iterable[SweepRun]) -> dict[str, dict[str, UnitStatus]]:
    """Read the state of every unit of every run, by label and key; shared units are read once."""
    scanned: dict[str, tuple[UnitStatus, Manifest | None]] = {}
    states = {}
    for sweep_run in sweep_runs:
        run_states: dict[str, UnitStatus] = {}
        made: dict[str, Manifest] = {}
        for unit in sweep_run.units:
            if (name := sweep_run.name(unit.key)) not in scanned:
                scanned[name] = determine_state(unit, sweep_run.owner(unit.key), run_states, made)
            run_states[unit.key], present = scanned[name]
            if present:
                made[unit.key] = present
        states[sweep_run.label] = run_states
    return states
