"""The members of a sweep: each setting is an ordinary run, and what several have in common is made once."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hpcddm.config import Experiment
from hpcddm.files import with_content
from hpcddm.pipeline import PlannedUnit, plan
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.manifest import digest
from hpcddm.status import UnitStatus, judge
from hpcddm.sweep.index import Index
from hpcddm.sweep.settings import Sweep


@dataclass(frozen=True)
class Member:
    """One setting: its run, what it consists of, and whose run makes each of its units."""

    label: str
    run: RunDir
    experiment: Experiment
    units: list[PlannedUnit]
    identities: dict[str, str]
    owners: dict[str, str] = field(default_factory=dict)
    """For every unit the label of the member in whose run it is made."""

    def name(self, key: str) -> str:
        """A unit as the sweep's journal calls it."""
        return f"{self.owners[key]}/{key}"

    def owner(self, key: str) -> RunDir:
        """The run in which a unit is made."""
        return RunDir(self.run.root.parent / self.owners[key])


def members_of(sweep: Sweep, home: RunDir) -> list[Member]:
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
        found.append(Member(label, run, experiment, units, identities(units)))
    return found


def identities(units: Iterable[PlannedUnit]) -> dict[str, str]:
    """For every unit a hash of all that shapes its outputs, down to the images: equal ones are the same work.

    How many units its stage has is no part of it: what depends on that is among the settings under its fingerprint.
    """
    found: dict[str, str] = {}
    for unit in units:
        reads = [found[key] for key in unit.reads]
        found[unit.key] = digest([unit.key, unit.covers, unit.site, unit.minimum, reads])[:24]
    return found


def assign(members: Iterable[Member], index: Index) -> None:
    """Settle whose run makes each unit: whoever had it first, and a member with a folder of its own keeps that."""
    members = list(members)
    own = {member.label: _own_folders(member) for member in members}
    for member in members:
        for key in own[member.label]:
            index.owners.setdefault(member.identities[key], member.label)
    for member in members:
        for key, identity in member.identities.items():
            is_own = key in own[member.label]
            member.owners[key] = member.label if is_own else index.owners.setdefault(identity, member.label)


def _own_folders(member: Member) -> set[str]:
    """The units that were made, or begun, in a member's run itself."""
    if not member.run.root.is_dir():
        return set()
    folders = {key: member.run.unit(key) for key in member.identities}
    linked = {folder for folder in {folder.parent for folder in folders.values()} if folder.is_symlink()}
    return {
        key
        for key, folder in folders.items()
        if folder.parent not in linked and folder.is_dir() and not folder.is_symlink()
    }


def survey_members(members: Iterable[Member]) -> dict[str, dict[str, UnitStatus]]:
    """The state of every unit of every member, by label and key; what is shared is looked at once."""
    looked: dict[str, tuple[UnitStatus, str | None]] = {}
    states = {}
    for member in members:
        found: dict[str, UnitStatus] = {}
        digests: dict[str, str] = {}
        for unit in member.units:
            name = member.name(unit.key)
            if name not in looked:
                looked[name] = judge(unit, member.owner(unit.key).unit(unit.key), found, digests)
            found[unit.key], outputs = looked[name]
            if outputs:
                digests[unit.key] = outputs
        states[member.label] = found
    return states
