"""Checks of a bundle before a byte of its weights is copied: who signed it, and whether it is what was agreed on."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hpcddm.collaboration.contract_checks import (
    agreed_expert,
    agreed_paths,
    require_contract,
    require_key,
    require_planned,
    require_recipe,
    require_same_files,
)
from hpcddm.config.experiment import Experiment
from hpcddm.errors import UserError, require
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import printable
from hpcddm.exchange.bundle import FILE, Bundle
from hpcddm.exchange.contract import AgreedExpert, Contract
from hpcddm.exchange.signed_folder import ListedFile
from hpcddm.exchange.ssh_keys import PublicKey
from hpcddm.files import atomic
from hpcddm.files.checked_reads import MIB
from hpcddm.files.tensor_file import HEADER_BYTES, LENGTH_BYTES
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import require_complete, survey_units
from hpcddm.runs import links, manifest
from hpcddm.runs.files import CURVE
from hpcddm.runs.import_records import accepted_bundles, counted_bundle, read_signed_bundle
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir

SPARE_BYTES = 64 * MIB
"""Bytes that stay free on the run's disk."""


@dataclass(frozen=True)
class SignedBundle:
    """A bundle that fits the contract by its list alone, and its folder."""

    folder: Path
    contract: Contract
    entry: AgreedExpert
    bundle: Bundle
    signer: PublicKey

    @property
    def key(self) -> str:
        """The expert, as `stage/unit`."""
        return self.bundle.unit

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.bundle.files.values())


@dataclass(frozen=True)
class ImportPlan:
    """Expectation of this run for an expert: its manifest without outputs, the manifests of its inputs, its files."""

    experiment: Experiment
    expected: Manifest
    inputs: Mapping[str, Manifest]
    paths: Mapping[str, str]
    """Paths in the unit's folder, by the names in the bundle."""


def open_bundle(run: RunDir, folder: Path) -> SignedBundle:
    """Read the signed list of a bundle and compare it with the contract; nothing is copied.

    Args:
        run: The run that imports it.
        folder: Folder of the bundle.

    Raises:
        UserError: The run has no contract, the signature does not fit, or the list is not what was agreed on.
    """
    contract = require_contract(run)
    bundle, signer = read_signed_bundle(folder)
    place = folder / FILE
    require(bundle.contract == contract.id, f"{place}: is of another contract, {bundle.contract}; refused")
    require(bundle.unit in contract.experts, f"{place}: {bundle.unit} is not an expert of the contract; refused")
    entry = agreed_expert(contract, bundle.unit)
    require(
        bundle.recipe == entry.digest,
        f"{place}: {bundle.unit} was made by another recipe than the contract has now; refused, ask {entry.site} for a"
        " bundle of the newest contract",
    )
    require(bundle.site == entry.site, f"{place}: is of {bundle.site}, but {bundle.unit} is of {entry.site}; refused")
    require_key(contract, entry.site, signer, place)
    require_same_files(bundle.files, entry, place)
    most = sum(spec.size for spec in contract.table(bundle.unit).values()) + HEADER_BYTES + LENGTH_BYTES
    for name, file in bundle.files.items():
        require(file.size <= most, f"{place}: {name} has {file.size:,} bytes, more than {most:,}; refused")
    seen = [0, *(images for images, _ in bundle.curve)]
    is_curve = all(before < after <= entry.images for before, after in pairwise(seen))
    require(is_curve, f"{place}: curve: its images do not ascend to at most {entry.images:,}; refused")
    return SignedBundle(folder, contract, entry, bundle, signer)


def newer_bundle(run: RunDir, signed: SignedBundle) -> str | None:
    """Return what was imported and is newer than a bundle, or has its number, as text; None for the newest bundle.

    Bundles of the same recipe and site count, signed by keys that are accepted today.
    """
    bundle = signed.bundle
    others = [one for one in accepted_bundles(run, signed.key) if one.recipe == bundle.recipe]
    others = [one for one in others if one.number >= bundle.number and one.files != bundle.files]
    if not others:
        return None
    if others[0].number > bundle.number:
        return f"bundle {bundle.number} is older than bundle {others[0].number} of {signed.key}, which was imported"
    return f"is another bundle {bundle.number} of {signed.key} than the one that was imported"


def is_imported(run: RunDir, signed: SignedBundle, is_replaced: bool) -> bool:
    """Return True if the run has the expert from just this bundle, and its files are there.

    Raises:
        UserError: A bundle of this number with other files, or a newer one, was imported before, and may not be
            replaced.
    """
    made, present = imported_bundle(run, signed.key), manifest.read_if_usable(run.unit(signed.key))
    same = (signed.bundle.number, signed.bundle.recipe, signed.bundle.files)
    if made is not None and present is not None and (made.number, made.recipe, made.files) == same:
        return manifest.find_damage(run.unit(signed.key), present) is None
    newer = newer_bundle(run, signed)
    if newer is not None and not is_replaced:
        reason = (
            f"{signed.folder / FILE}: {newer}; refused, unless {signed.bundle.site} says that it counts from 1 again"
        )
        raise UserError(str(step(*_replacing(run, signed), reason=reason)))
    return False


def imported_bundle(run: RunDir, key: str) -> Bundle | None:
    """Return the bundle from which the present folder of an expert was made; None where there is none."""
    present = manifest.read_if_usable(run.unit(key))
    if present is None:
        return None
    files = {output.path: ListedFile(output.size, output.sha256) for output in present.outputs if output.path != CURVE}
    return counted_bundle(run, key, files)


def plan_import(run: RunDir, experiment: Experiment, signed: SignedBundle, is_replaced: bool) -> ImportPlan:
    """Compare a bundle with what this run expects of the expert, and look for room.

    Args:
        run: The run.
        experiment: Its experiment.
        signed: The bundle.
        is_replaced: True if an expert that is here may be set aside.

    Raises:
        UserError: The run has changed since the contract, an input is missing, the expert is here, or there is too
            little room on the disk.
    """
    key, units = signed.key, {unit.key: unit for unit in plan_units(experiment)}
    require_planned(run, units, key)
    unit, context = units[key], f"{run.root}: this run has changed since the contract"
    require_recipe(signed.entry, unit.fingerprint_settings, signed.entry.inputs, context)
    states = survey_units(list(units.values()), run)
    counted = [name for name in unit.inputs if unit.counts_in_fingerprint(name)]
    require_complete(states, run, *counted)
    found = {name: manifest.read(run.unit(name)) for name in counted}
    inputs = {name: present for name, present in found.items() if present}
    expected = unit.expected(inputs)
    require_recipe(signed.entry, expected.settings, expected.inputs, context)
    paths = agreed_paths(experiment, key, signed.entry)
    links.require_no_links(run, key)
    if not is_replaced and holds_files(run, key):
        raise UserError(
            str(step(*_replacing(run, signed), reason=f"{run.unit(key)}: is here already; --replace sets it aside"))
        )
    free = atomic.free_bytes(run.root)
    if free < signed.size + SPARE_BYTES:
        reason = f"{run.root}: {free:,} bytes are free, and the bundle needs {signed.size + SPARE_BYTES:,}; make room"
        raise UserError(str(step("hpcddm", "clean", run.root, reason=reason)))
    return ImportPlan(experiment, expected, inputs, paths)


def _replacing(run: RunDir, signed: SignedBundle) -> tuple[object, ...]:
    return ("hpcddm", "site", "import", run.root, signed.folder, "--replace")


def holds_files(run: RunDir, key: str) -> bool:
    """Return True if a unit's folder has more than the lock of the jobs."""
    folder = run.unit(key)
    return folder.is_dir() and any(name != ".lease" for name in os.listdir(folder))


def named(experts: Mapping[str, AgreedExpert]) -> str:
    """Return experts with their sites as text."""
    return ", ".join(f"{printable(key)} of {printable(entry.site)}" for key, entry in experts.items())
