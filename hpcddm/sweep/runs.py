"""The runs of a sweep: each setting is an ordinary run, and what several have in common is made once."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hpcddm.config import Experiment
from hpcddm.loading import with_content
from hpcddm.pipeline import PlannedUnit, plan
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.manifest import digest
from hpcddm.sweep.index import Index
from hpcddm.sweep.settings import Sweep
from hpcddm.unit_states import UnitStatus, unit_state


@dataclass(frozen=True)
class SweepRun:
    """One setting: its run, what it consists of, and whose run makes each of its units."""

    label: str
    run: RunDir
    experiment: Experiment
    units: list[PlannedUnit]
    identities: dict[str, str]
    owners: dict[str, str] = field(default_factory=dict)
    """For every unit the label of the setting in whose run it is made."""

    def name(self, key: str) -> str:
        """A unit as the sweep's journal calls it."""
        return f"{self.owners[key]}/{key}"

    def owner(self, key: str) -> RunDir:
        """The run in which a unit is made."""
        return RunDir(self.run.root.parent / self.owners[key])


def sweep_runs_of(sweep: Sweep, home: RunDir) -> list[SweepRun]:
    """All settings with the hash of their images, planned.

    Raises `UserError` when images are not there.
    """
    contents: dict[str, str | None] = {}
    found = []
    for label, experiment in sweep.experiments.items():
        run = RunDir(home.root / label)
        source = experiment.data.source.model_dump_json()
        experiment = with_content(experiment, run, contents.get(source))
        contents[source] = experiment.data.content
        units = plan(experiment)
        found.append(SweepRun(label, run, experiment, units, identities(units)))
    return found


def identities(units: Iterable[PlannedUnit]) -> dict[str, str]:
    """For every unit a hash of all that shapes its outputs, down to the images: equal ones are the same work.

    How many units its stage has is no part of it: what depends on that is among the settings under its fingerprint.
    """
    found: dict[str, str] = {}
    for unit in units:
        reads = [found[key] for key in unit.inputs]
        found[unit.key] = digest([unit.key, unit.fingerprint_settings, unit.site, unit.min_optional, reads])[:24]
    return found


def assign(sweep_runs: Iterable[SweepRun], index: Index) -> None:
    """Settle whose run makes each unit: whoever had it first, and a run with a folder of its own keeps that."""
    sweep_runs = list(sweep_runs)
    own = {sweep_run.label: _own_folders(sweep_run) for sweep_run in sweep_runs}
    for sweep_run in sweep_runs:
        for key in own[sweep_run.label]:
            index.owners.setdefault(sweep_run.identities[key], sweep_run.label)
    for sweep_run in sweep_runs:
        for key, identity in sweep_run.identities.items():
            is_own = key in own[sweep_run.label]
            sweep_run.owners[key] = sweep_run.label if is_own else index.owners.setdefault(identity, sweep_run.label)


def _own_folders(sweep_run: SweepRun) -> set[str]:
    """The units that were made, or begun, in the run itself."""
    if not sweep_run.run.root.is_dir():
        return set()
    folders = {key: sweep_run.run.unit(key) for key in sweep_run.identities}
    linked = {folder for folder in {folder.parent for folder in folders.values()} if folder.is_symlink()}
    return {
        key
        for key, folder in folders.items()
        if folder.parent not in linked and folder.is_dir() and not folder.is_symlink()
    }


def survey_sweep_runs(sweep_runs: Iterable[SweepRun]) -> dict[str, dict[str, UnitStatus]]:
    """The state of every unit of every run, by label and key; what is shared is read once."""
    scanned: dict[str, tuple[UnitStatus, str | None]] = {}
    states = {}
    for sweep_run in sweep_runs:
        found: dict[str, UnitStatus] = {}
        digests: dict[str, str] = {}
        for unit in sweep_run.units:
            name = sweep_run.name(unit.key)
            if name not in scanned:
                scanned[name] = unit_state(unit, sweep_run.owner(unit.key).unit(unit.key), found, digests)
            found[unit.key], outputs = scanned[name]
            if outputs:
                digests[unit.key] = outputs
        states[sweep_run.label] = found
    return states
