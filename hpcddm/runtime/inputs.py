"""What a unit reads, looked at when its job starts: nothing unfinished, and nothing that was made of something else."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.rundir import manifest as manifests
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.manifest import Manifest
from hpcddm.runtime.spec import Spec

PAUSES = (0.0, 1.0, 4.0)
"""Seconds between looks for what is missing."""


class NotReady(UserError):
    """What a unit reads is not there, or not as it must be: not the unit's own failure."""


@dataclass(frozen=True)
class Inputs:
    """The manifests of the units that are there, by key, and the units that it wants and does without."""

    found: dict[str, Manifest]
    missing: list[str]


def patient_gather(spec: Spec, run: RunDir) -> Inputs:
    """As `gather`, after a second look where something is missing: a file system may show it to this node later."""
    for pause in PAUSES:
        try:
            return gather(spec, run)
        except NotReady:
            time.sleep(pause)
    return gather(spec, run)


def gather(spec: Spec, run: RunDir) -> Inputs:
    """Find everything that a unit reads: all that it needs, and what is there of what it wants.

    Raises `NotReady` naming what is missing or does not fit, and how much of the minimum is there.
    """
    found = {key: _needed(spec, run, key) for key in spec.requires}
    faults: dict[str, str] = {}
    for key, fingerprint_settings in spec.optional.items():
        present = manifests.read(run.unit(key))
        fault = (
            _fault(key, present, fingerprint_settings, found, run.unit(key)) if present else f"{key} is not complete"
        )
        if fault:
            faults[key] = fault
        else:
            found[key] = present
    there = len(spec.optional) - len(faults)
    if there < spec.min_optional:
        listed = "; ".join(faults.values())
        raise _refusal(
            spec, f"it needs {spec.min_optional} of {len(spec.optional)} experts, {there} are there ({listed})", run
        )
    for key in spec.requires:
        conflict = _conflict(key, found[key], found) or _other_choice(key, found, spec)
        if conflict:
            raise _refusal(spec, conflict, run)
    return Inputs(found, list(faults))


def _refusal(spec: Spec, reason: str, run: RunDir) -> NotReady:
    return NotReady(f"{spec.key} cannot start: {reason}; see 'hpcddm status {run.root}'")


def _needed(spec: Spec, run: RunDir, key: str) -> Manifest:
    found = manifests.read(run.unit(key))
    if found is None:
        raise _refusal(spec, f"{key} is not complete", run)
    broken = manifests.damage(run.unit(key), found)
    if broken:
        delete = run.unit(key) / manifests.FILE_NAME
        raise UserError(f"{spec.key} cannot start: {broken}; delete {delete} and submit again")
    return found


def _fault(
    key: str, present: Manifest, fingerprint_settings: dict[str, Any], found: dict[str, Manifest], folder: Path
) -> str | None:
    """Why a unit that is wanted cannot be used."""
    if present.settings != fingerprint_settings:
        return f"{key} was made with other settings"
    return manifests.damage(folder, present) or _conflict(key, present, found)


def _conflict(key: str, present: Manifest, found: dict[str, Manifest]) -> str | None:
    """What a unit was made with that is another one now."""
    other = (one for one, digest in present.inputs.items() if one in found and found[one].digest != digest)
    return next((f"{key} was made with another {one}; submit again" for one in other), None)


def _other_choice(key: str, found: dict[str, Manifest], spec: Spec) -> str | None:
    """How the wanted units that a unit was made with differ from those that are there now."""
    used, there = (keys & spec.optional.keys() for keys in (found[key].inputs.keys(), found.keys()))
    if not used or used == there:
        return None
    if there - used:
        return f"{key} was made without {min(there - used)}; submit again"
    again = f"bring it back, or submit with --redo {key.split('/')[0]}"
    return f"{key} was made with {min(used - there)}, which is not there; {again}"
