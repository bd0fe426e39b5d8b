"""Inputs of a unit, checked when its job starts: all are complete and consistent with each other."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError, require
from hpcddm.errors.next_step import step
from hpcddm.files.checked_reads import Unreadable
from hpcddm.jobs.spec import Spec
from hpcddm.runs import manifest as manifests
from hpcddm.runs.links import link_above
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir

PAUSES = (0.0, 1.0, 4.0)
"""Seconds between two reads of a missing input."""


class InputsNotReady(UserError):
    """Error for missing or inconsistent inputs of a unit, which is not a failure of the unit itself."""


@dataclass(frozen=True)
class UnitInputs:
    """Manifests of the existing inputs, by key, and the keys of missing optional inputs."""

    manifests: dict[str, Manifest]
    missing: list[str]


def wait_for_inputs(spec: Spec, run: RunDir) -> UnitInputs:
    """Gather the inputs of a unit, with some retries because a file system may show an input to this node late.

    Args:
        spec: Specification of the unit.
        run: The run.

    Raises:
        InputsNotReady: If inputs are missing or inconsistent.
        UserError: If a required input is damaged, or its folder is a link.
    """
    for pause in PAUSES:
        try:
            return gather_inputs(spec, run)
        except InputsNotReady:
            time.sleep(pause)
    return gather_inputs(spec, run)


def gather_inputs(spec: Spec, run: RunDir) -> UnitInputs:
    """Read the manifests of all required inputs and of the existing optional inputs.

    Args:
        spec: Specification of the unit.
        run: The run.

    Raises:
        InputsNotReady: If inputs are missing or inconsistent.
        UserError: If a required input is damaged, or its folder is a link.
    """
    gates = [spec.gates[key] for key in spec.requires if key in spec.gates]
    inputs = {key: _needed(spec, run, key) for key in [*spec.requires, *gates]}
    faults: dict[str, str] = {}
    for key, fingerprint_settings in spec.optional.items():
        try:
            present = manifests.read(run.unit(key))
        except Unreadable as error:
            faults[key] = str(error)
            continue
        if present is None:
            faults[key] = f"{key} is not complete"
        elif fault := link_above(run, key) or _fault(key, present, fingerprint_settings, inputs, run.unit(key)):
            faults[key] = fault
        else:
            inputs[key] = present
            if gate := spec.gates.get(key):
                _open_gate(gate, key, run, inputs, faults)
    counted = [key for key in spec.optional if key not in spec.extras]
    absent = [faults[key] for key in counted if key in faults]
    if (there := len(counted) - len(absent)) < spec.min_optional:
        text = f"it needs {spec.min_optional} of {len(counted)} experts, {there} are there ({'; '.join(absent)})"
        raise _refusal(spec, text, run)
    for key in [*spec.requires, *gates]:
        if conflict := _conflict(key, inputs[key], inputs) or _other_choice(key, inputs, spec):
            raise _refusal(spec, conflict, run)
    return UnitInputs(inputs, list(faults))


def _refusal(spec: Spec, reason: str, run: RunDir) -> InputsNotReady:
    return InputsNotReady(str(step("hpcddm", "status", run.root, reason=f"{spec.key} cannot start: {reason}")))


def _needed(spec: Spec, run: RunDir, key: str) -> Manifest:
    if (manifest := manifests.read(run.unit(key))) is None:
        raise _refusal(spec, f"{key} is not complete", run)
    linked = link_above(run, key)
    require(linked is None, f"{spec.key} cannot start: {key}: {linked}")
    if broken := manifests.find_damage(run.unit(key), manifest):
        delete = run.unit(key) / manifests.FILE_NAME
        raise UserError(f"{spec.key} cannot start: {broken}; delete {delete} and submit again")
    return manifest


def _fault(
    key: str, present: Manifest, fingerprint_settings: dict[str, Any], inputs: dict[str, Manifest], folder: Path
) -> str | None:
    """Return the reason why an optional input cannot be used; None if it can."""
    if present.settings != fingerprint_settings:
        return f"{key} was made with other settings"
    return manifests.find_damage(folder, present) or _conflict(key, present, inputs)


def _open_gate(gate: str, key: str, run: RunDir, inputs: dict[str, Manifest], faults: dict[str, str]) -> None:
    """Add the gate of an optional input to the inputs; without it the input is a fault, and so is the gate."""
    opened = manifests.read_if_usable(run.unit(gate))
    fault = f"{gate} is not complete" if opened is None else _conflict(gate, opened, inputs)
    if opened is None or fault:
        faults[key] = faults[gate] = str(fault)
        del inputs[key]
    else:
        inputs[gate] = opened


def _conflict(key: str, present: Manifest, inputs: dict[str, Manifest]) -> str | None:
    """Return an error message if a unit was made with another version of one of these inputs, else None."""
    for name, digest in present.inputs.items():
        unit, part = manifests.parse_input_name(name)
        if unit in inputs and inputs[unit].digest_of(part) != digest:
            return f"{key} was made with another {name}; submit again"
    return None


def _other_choice(key: str, inputs: dict[str, Manifest], spec: Spec) -> str | None:
    """Return an error message if a unit was made with other optional inputs than exist now, else None."""
    counted = spec.optional.keys() - set(spec.extras)
    used, there = (keys & counted for keys in (inputs[key].inputs.keys(), inputs.keys()))
    if not used or used == there:
        return None
    if there - used:
        return f"{key} was made without {min(there - used)}; submit again"
    again = f"bring it back, or submit with --redo {key.split('/')[0]}"
    return f"{key} was made with {min(used - there)}, which is not there; {again}"
