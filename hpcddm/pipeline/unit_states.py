"""States of the units of a run, from the files of the run alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import default_at
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import MOST_OF_A_LINE, printable
from hpcddm.files.reading import Unreadable
from hpcddm.jobs.attempt import attempts
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.records import AttemptRecord, read_record
from hpcddm.pipeline.plan import PlannedUnit, plan
from hpcddm.runs import manifest
from hpcddm.runs.heartbeat import Heartbeat
from hpcddm.runs.journal import Journal
from hpcddm.runs.layout import RunDir
from hpcddm.runs.links import link_above
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.unit_keys import CATALOG

LOOK_BACK = 20
"""Number of newest attempts that are searched for an attempt with progress."""


class State(StrEnum):
    """The state of a unit; only `COMPLETE` counts as success."""

    COMPLETE = "complete"
    STALE = "stale"
    OUTDATED = "outdated"
    WAITING = "waiting"
    """State of a unit that exists and can be checked only when the units that it reads are complete."""
    DAMAGED = "damaged"
    MISSING = "missing"


@dataclass(frozen=True)
class UnitStatus:
    """State of a unit, the reason, and the settings that changed."""

    unit: PlannedUnit
    state: State
    reason: str = ""
    changes: dict[str, tuple[Any, Any]] | None = None
    """For a stale unit: key -> (value it was made with, value now)."""

    @property
    def key(self) -> str:
        """stage/unit."""
        return self.unit.key


def survey(units: list[PlannedUnit], run: RunDir) -> dict[str, UnitStatus]:
    """Determine the state of every planned unit, by key, from manifests alone."""
    states: dict[str, UnitStatus] = {}
    made: dict[str, Manifest] = {}
    for unit in units:
        states[unit.key], present = unit_state(unit, run, states, made)
        if present:
            made[unit.key] = present
    return states


def require_complete(states: Mapping[str, UnitStatus], run: RunDir, *keys: str) -> None:
    """Raise `UserError` for the first of these units that is not complete, as where it was made of what has changed."""
    for status in (states[key] for key in keys if states[key].state is not State.COMPLETE):
        reason = f"{status.key} is {described(status, run)}"
        raise UserError(str(step("hpcddm", "status", run.root, reason=reason)))


def is_current(states: Mapping[str, UnitStatus], run: RunDir, key: str) -> bool:
    """Tell if a unit is complete, or whole in a folder to which nothing that it was made of was copied."""
    status = states[key]
    if status.state is not State.WAITING:
        return status.state is State.COMPLETE
    absent = [name for name in status.unit.inputs if states[name].state is not State.COMPLETE]
    return not any(run.unit(name).exists() or run.logs(name).exists() for name in absent)


def require_current(states: Mapping[str, UnitStatus], run: RunDir, *keys: str) -> None:
    """Raise `UserError` for the first of these units that is not current, see `is_current`."""
    require_complete(states, run, *(key for key in keys if not is_current(states, run, key)))


def described(status: UnitStatus, run: RunDir) -> str:
    """Describe an incomplete unit as the run's files tell: no scheduler is asked."""
    work, submissions = activity(run, status.key), Journal(run.journal).submissions()
    newest = next((one for one in reversed(submissions) if status.key in one.units), None)
    if newest and work.last and work.is_running:
        beat = work.last.beat
        return f"running ({beat.done:,} of {beat.total:,} images)" if beat and beat.total else "running"
    is_queued = newest is not None and newest.scheduler != "local" and status.key not in newest.cancelled
    if newest and is_queued and (work.last is None or work.last.token != newest.uuid):
        return "submitted and not begun"
    return f"{status.state} ({status.reason})" if status.reason else status.state


def are_numbered(states: Mapping[str, UnitStatus]) -> bool:
    """Tell if a catalog has numbered the samples, so that other images would be those of another run."""
    return states[CATALOG].state is not State.MISSING


def has_numbers(experiment: Experiment, run: RunDir) -> bool:
    """Tell the same of a run, from the manifests of its tars and its catalog."""
    units = plan(experiment)
    read = {CATALOG, *next(unit.inputs for unit in units if unit.key == CATALOG)}
    return are_numbered(survey([unit for unit in units if unit.key in read], run))


def unit_state(
    unit: PlannedUnit, run: RunDir, states: dict[str, UnitStatus], made: dict[str, Manifest]
) -> tuple[UnitStatus, Manifest | None]:
    """Determine the state of a unit in a run; also return its manifest, None unless complete or stale.

    states, made: the same of all units that it reads.
    """
    fault, folder = link_above(run, unit.key), run.unit(unit.key)
    if fault:
        return UnitStatus(unit, State.DAMAGED, fault), None
    try:
        present = manifest.read(folder)
    except Unreadable as error:
        return UnitStatus(unit, State.DAMAGED, str(error)), None
    arrived = {key for key in unit.optional if states[key].state is State.COMPLETE}
    status = _state_of(unit, present, made, arrived, folder)
    status = replace(status, reason=printable(status.reason, MOST_OF_A_LINE))
    if present is None or status.state not in (State.COMPLETE, State.STALE):
        return status, None
    return status, present


def _state_of(
    unit: PlannedUnit, present: Manifest | None, made: dict[str, Manifest], arrived: set[str], folder: Path
) -> UnitStatus:
    if present is None:
        return UnitStatus(unit, State.MISSING)
    changes = _changes(present.settings, unit.fingerprint_settings)
    if changes:
        listed = _listed(changes)
        return UnitStatus(unit, State.STALE, f"made with other settings ({listed})", changes)
    broken = manifest.damage(folder, present)
    if broken:
        return UnitStatus(unit, State.DAMAGED, broken)
    for key in {manifest.referenced(name)[0] for name in present.inputs} - set(unit.inputs):
        return UnitStatus(unit, State.OUTDATED, f"{key} belongs to the experiment no more")
    for key in unit.optional:
        if key not in present.inputs and key in arrived:
            return UnitStatus(unit, State.OUTDATED, f"{key} has arrived since")
        if key in present.inputs and key in made and made[key].digest != present.inputs[key]:
            return UnitStatus(unit, State.OUTDATED, f"{key} has changed since")
    for key in unit.requires:
        if not unit.counts(key):
            continue
        if key not in made:
            return UnitStatus(unit, State.WAITING, f"{key} is not complete")
        for name, digest in unit.expected({key: made[key]}).inputs.items():
            if present.inputs.get(name) != digest:
                return UnitStatus(unit, State.OUTDATED, f"{name} has changed since")
    unused = [key for key in unit.optional if key not in present.inputs]
    gone = [key for key in unit.optional if key in present.inputs and key not in made]
    for key in unit.missing_inputs([*unused, *gone]):
        return UnitStatus(unit, State.WAITING, f"{key} is not complete")
    # A result stays what it was when an expert that it was made with has gone and enough are left.
    remarks = [f"without {key}" for key in unused] + [f"made with {key}, which has gone" for key in gone]
    return UnitStatus(unit, State.COMPLETE, "; ".join(remarks))


def _changes(before: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, (before, now); a fingerprint may leave out what has its default."""
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    defaults = {key: default_at(Experiment, key) for key in changed}
    return {key: (before.get(key, defaults[key]), now.get(key, defaults[key])) for key in changed}


def _listed(changes: dict[str, tuple[Any, Any]], explain: Callable[[str, Any], str] = lambda key, before: "") -> str:
    """List changed settings; key and old value are a manifest's."""
    return "; ".join(
        f"{printable(key)}: {printable(repr(old))} -> {printable(repr(new))}{explain(key, old)}"
        for key, (old, new) in changes.items()
    )


def check_stale(
    states: list[UnitStatus], redo: set[str], explain: Callable[[str, Any], str] = lambda key, before: ""
) -> None:
    """Refuse to go on over changed settings.

    explain: returns what more is to be said of a setting, by its key and old value, or nothing.
    Raises `ConfigError` naming key, old and new value, the stages that become stale, and the way out.
    """
    stale = [status for status in states if status.state is State.STALE and status.unit.stage not in redo]
    if not stale:
        return
    changes = {key: change for status in stale for key, change in (status.changes or {}).items()}
    stages = list(dict.fromkeys(status.unit.stage for status in stale))
    listed = _listed(changes, explain)
    flags = " ".join(f"--redo {stage}" for stage in stages)
    raise ConfigError(
        f"settings changed since this run was made: {listed}. Stale: {', '.join(stages)} and what reads them."
        f" Take another run directory, or repeat with {flags}"
    )


@dataclass(frozen=True)
class Activity:
    """Work on a unit by its files: the last attempt, and the last progress."""

    last: AttemptRecord | None
    beat: Heartbeat | None
    """The newest heartbeat that counts images, perhaps of an attempt before the last one."""
    saved: tuple[int, float] | None
    """Images seen by the newest training state, and the time at which it was written."""
    faulty: dict[str, str] = field(default_factory=dict)
    """Nodes that ended attempts since the last one that saved a state, each with the reason."""

    @property
    def attempts(self) -> int:
        """Number of the last attempt, 0 for none."""
        return self.last.number if self.last else 0

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the last attempt; None where it has none."""
        return self.last.outcome if self.last else None

    @property
    def reason(self) -> str:
        """Reason for the end of the last attempt; empty where it has none."""
        return self.last.reason if self.last else ""

    @property
    def is_running(self) -> bool:
        """True where the last attempt is open and has a fresh heartbeat."""
        return self.last is not None and self.last.is_open and self.last.beat is not None and self.last.beat.is_fresh


def activity(run: RunDir, key: str) -> Activity:
    """Read the records of the attempts that make a unit, from the newest back to the first with a saved state."""
    last: AttemptRecord | None = None
    beat: Heartbeat | None = None
    saved: tuple[int, float] | None = None
    faulty: dict[str, str] = {}
    for number, folder in attempts(run.logs(key))[: -LOOK_BACK - 1 : -1]:
        record = read_record(number, folder)
        if last and record.ended_well:
            # What it made was there, and is made again by the later ones.
            break
        last = last or record
        faulty = dict.fromkeys(record.faulty, record.reason) | faulty
        if record.beat and record.beat.total:
            beat = beat or record.beat
            if record.beat.saved_images is not None and record.beat.saved_time:
                saved = record.beat.saved_images, record.beat.saved_time
                break
    return Activity(last, beat, saved, faulty)
