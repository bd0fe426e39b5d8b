"""States of a run's units according to their manifests, and the settings that have changed since."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import default_of_key
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable
from hpcddm.files.checked_reads import Unreadable
from hpcddm.jobs.activity import read_activity
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.pipeline.state import FINISHED, STATE_AFTER, State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.journal import Journal
from hpcddm.runs.links import link_above
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CATALOG


@dataclass(frozen=True)
class UnitStatus:
    """State of a unit, the reason for it, and the settings that have changed."""

    unit: PlannedUnit
    state: State
    reason: str = ""
    changes: dict[str, tuple[Any, Any]] | None = None
    """For a stale unit, the previous and the current value of each changed setting, by key."""

    @property
    def key(self) -> str:
        """The unit, as `stage/unit`."""
        return self.unit.key


def survey_units(units: list[PlannedUnit], run: RunDir) -> dict[str, UnitStatus]:
    """Determine the state of every unit from the manifests alone.

    Args:
        units: Units of the experiment, each after its inputs, as `plan_units` lists them.
        run: The run.

    Returns:
        The states, by key.
    """
    states: dict[str, UnitStatus] = {}
    made: dict[str, Manifest] = {}
    for unit in units:
        states[unit.key], present = determine_state(unit, run, states, made)
        if present:
            made[unit.key] = present
    return states


def require_complete(states: Mapping[str, UnitStatus], run: RunDir, *keys: str) -> None:
    """Check that units are complete and up to date.

    Args:
        states: States of all units, as `survey_units` returns them.
        run: The run.
        keys: The units to check.

    Raises:
        UserError: If one of these units is not complete; the message names the first one.
    """
    for status in (states[key] for key in keys if states[key].state is not State.COMPLETE):
        raise UserError(str(step("hpcddm", "status", run.root, reason=f"{status.key} is {describe(status, run)}")))


def is_current(states: Mapping[str, UnitStatus], run: RunDir, key: str) -> bool:
    """Return True if a unit is complete, or intact in a run that contains no traces of its missing inputs.

    The second case is a copy of the unit's folder without its inputs, which therefore cannot be compared.
    """
    status = states[key]
    if status.state is not State.WAITING:
        return status.state is State.COMPLETE
    absent = [name for name in status.unit.inputs if states[name].state is not State.COMPLETE]
    return not any(run.unit(name).exists() or run.logs(name).exists() for name in absent)


def require_current(states: Mapping[str, UnitStatus], run: RunDir, *keys: str) -> None:
    """Check that units are current, as defined by `is_current`.

    Raises:
        UserError: If one of these units is not current; the message names the first one.
    """
    require_complete(states, run, *(key for key in keys if not is_current(states, run, key)))


def state_by_records(status: UnitStatus, run: RunDir) -> tuple[State, str]:
    """Return the state of an incomplete unit and its reason by the run's files alone, without querying a scheduler."""
    last, submissions = read_activity(run, status.key), Journal(run.journal).submissions()
    newest = next((one for one in reversed(submissions) if status.key in one.units), None)
    if last.is_running:
        beat = last.beat
        return State.RUNNING, f"{beat.done:,} of {beat.total:,} images" if beat and beat.total else ""
    is_queued = newest is not None and newest.scheduler != "local" and status.key not in newest.cancelled
    if newest and is_queued and last.token != newest.uuid:
        return State.PENDING, "submitted and not begun"
    ending = last.decision or last.outcome
    return (STATE_AFTER[ending], last.reason) if ending in STATE_AFTER else (status.state, status.reason)


def describe(status: UnitStatus, run: RunDir) -> str:
    """Describe an incomplete unit as text by the run's files alone; a reason such as a link says more than attempts."""
    state, reason = (status.state, status.reason) if status.reason else state_by_records(status, run)
    return f"{state} ({reason})" if reason else state


def are_samples_numbered(states: Mapping[str, UnitStatus]) -> bool:
    """Return True if the run has a catalog, which numbers the samples; other images then need another run."""
    return states[CATALOG].state is not State.MISSING


def has_numbered_samples(experiment: Experiment, run: RunDir) -> bool:
    """Return True if the run has a catalog, from the manifests of the tars and the catalog."""
    units = plan_units(experiment)
    keys = {CATALOG, *next(unit.inputs for unit in units if unit.key == CATALOG)}
    return are_samples_numbered(survey_units([unit for unit in units if unit.key in keys], run))


def determine_state(
    unit: PlannedUnit, run: RunDir, states: dict[str, UnitStatus], made: dict[str, Manifest]
) -> tuple[UnitStatus, Manifest | None]:
    """Determine the state of one unit in a run.

    Args:
        unit: The unit.
        run: The run.
        states: States of the unit's inputs, by key.
        made: Manifests of the inputs that are complete or stale, by key.

    Returns:
        The state, and the unit's manifest if the unit is complete or stale, otherwise None.
    """
    fault, folder = link_above(run, unit.key), run.unit(unit.key)
    if fault:
        return UnitStatus(unit, State.DAMAGED, fault), None
    try:
        present = manifest.read(folder)
    except Unreadable as error:
        return UnitStatus(unit, State.DAMAGED, str(error)), None
    needed_by = {key: (key, unit.gates.get(key, key)) for key in unit.optional}
    arrived = {key for key, names in needed_by.items() if all(states[name].state is State.COMPLETE for name in names)}
    status = _state_of(unit, present, made, arrived, folder)
    status = replace(status, reason=printable(status.reason, MAX_LINE_CHARACTERS))
    if present is None or status.state not in FINISHED:
        return status, None
    return status, present


def _state_of(
    unit: PlannedUnit, present: Manifest | None, made: dict[str, Manifest], arrived: set[str], folder: Path
) -> UnitStatus:
    if present is None:
        return UnitStatus(unit, State.MISSING)
    if changes := _changes(present.settings, unit.fingerprint_settings):
        return UnitStatus(unit, State.STALE, f"made with other settings ({_listed(changes)})", changes)
    if broken := manifest.find_damage(folder, present):
        return UnitStatus(unit, State.DAMAGED, broken)
    for key in {manifest.parse_input_name(name)[0] for name in present.inputs} - set(unit.inputs):
        return UnitStatus(unit, State.OUTDATED, f"{key} belongs to the experiment no more")
    for key in unit.optional:
        if key not in present.inputs and key in arrived:
            return UnitStatus(unit, State.OUTDATED, f"{key} has arrived since")
        if key in present.inputs and key in made and made[key].digest != present.inputs[key]:
            return UnitStatus(unit, State.OUTDATED, f"{key} has changed since")
    for key in unit.requires:
        if not unit.counts_in_fingerprint(key):
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
    # A result stays valid when an expert that it used was removed, as long as enough remain.
    remarks = [f"without {key}" for key in unused] + [f"made with {key}, which has gone" for key in gone]
    return UnitStatus(unit, State.COMPLETE, "; ".join(remarks))


def _changes(before: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ as (before, now); a fingerprint may omit settings with default values."""
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    defaults = {key: default_of_key(Experiment, key) for key in changed}
    return {key: (before.get(key, defaults[key]), now.get(key, defaults[key])) for key in changed}


def _listed(changes: dict[str, tuple[Any, Any]], explain: Callable[[str, Any], str] = lambda key, before: "") -> str:
    """Describe changed settings as text; key and old value come from a manifest, so they are escaped."""
    return "; ".join(
        f"{printable(key)}: {printable(repr(old))} -> {printable(repr(new))}{explain(key, old)}"
        for key, (old, new) in changes.items()
    )


def check_stale(
    states: list[UnitStatus], redo: set[str], explain: Callable[[str, Any], str] = lambda key, before: ""
) -> None:
    """Refuse to continue a run with changed settings.

    Args:
        states: States of the units to check.
        redo: Stages that the user wants to redo; their units may be stale.
        explain: Function that maps a setting's key and old value to a remark, or to ''.

    Raises:
        ConfigError: If units are stale; the message names the settings, the stages, and the next step.
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
