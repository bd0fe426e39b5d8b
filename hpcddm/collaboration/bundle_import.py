"""Imports a bundle: copies it into quarantine, checks the copy, and publishes the unit in one step.

The manifest of the unit is written here: of the bundle it takes sizes and digests that were verified, and no figure.
torch is not imported.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hpcddm.collaboration.bundle_checks import ImportPlan, SignedBundle, holds_files
from hpcddm.errors import UserError
from hpcddm.errors.printing import ascii_only
from hpcddm.exchange import signed_folder
from hpcddm.exchange.bundle import FILE, MAX_BYTES
from hpcddm.files import atomic, checked_reads, guarded_writes
from hpcddm.files.checked_reads import Unreadable
from hpcddm.runs import manifest
from hpcddm.runs.files import CURVE
from hpcddm.runs.import_records import read_signed_bundle, record_folder
from hpcddm.runs.lease import lease
from hpcddm.runs.manifest import Output
from hpcddm.runs.run_dir import RunDir, replace_folder
from hpcddm.runs.stored_results import list_results
from hpcddm.runs.unit_keys import expert_of
from hpcddm.runs.unit_training import resolve_training
from hpcddm.runs.weights_files import training_costs

QUARANTINE = ".quarantine-"
"""Prefix of the private folders in which bundles are checked; those of killed imports remain until the next import."""
IMPORTED = "imported"
"""Key of a manifest's record about the bundle; the site's word in it is repeated, never used."""


def import_bundle(run: RunDir, signed: SignedBundle, plan: ImportPlan, advance: Callable[[int], None]) -> None:
    """Copy and check the files of a bundle, and publish the unit.

    Killed at any moment, it leaves the run as it was, or with the whole unit; a repeated import completes it.

    Args:
        run: The run, whose lock the caller holds.
        signed: The bundle.
        plan: What the run expects of it.
        advance: Called with the bytes of every block that is copied, and again when they are checked; it may raise.

    Raises:
        UserError: A file is not what was signed or not what the contract wants, or the disk does not take it.
    """
    try:
        with _quarantine(run) as place:
            files, unit, record = (place / name for name in ("files", "unit", "record"))
            for folder in (files, unit, record):
                folder.mkdir()
            signed_folder.receive(signed.folder, FILE, signed.bundle.files, files, advance)
            _check_tensors(files, signed, advance)
            _build_unit(files, unit, signed, plan)
            _build_record(record, signed)
            _publish(run, signed, unit, record)
    except OSError as error:
        raise UserError(
            f"{run.root}: the bundle cannot be written ({error.strerror}); nothing was imported, repeat this"
        ) from None


def remove_leftovers(run: RunDir) -> None:
    """Remove the private folders of imports that were killed; the caller holds the run's lock."""
    for leftover in run.imports.glob(f"{QUARANTINE}*"):
        guarded_writes.remove(leftover)


@contextmanager
def _quarantine(run: RunDir) -> Iterator[Path]:
    """Yield a private folder on the run's disk, which is removed at the end."""
    guarded_writes.make_folder(run.imports)
    place = run.imports / f"{QUARANTINE}{atomic.unique_suffix()}"
    with guarded_writes.open_folder(run.imports) as above:
        os.mkdir(place.name, 0o700, dir_fd=above)
    try:
        yield place
    finally:
        guarded_writes.remove(place)


def _check_tensors(files: Path, signed: SignedBundle, advance: Callable[[int], None]) -> None:
    # numpy, which no other verb of the login node waits for.
    from hpcddm.exchange import tensor_check

    table = signed.contract.table(signed.key)
    for name in signed.bundle.files:
        try:
            tensor_check.check_weights(files / name, table, advance)
        except Unreadable as error:
            place = signed.folder / name
            raise UserError(
                f"{place}: {ascii_only(error.reason)}; refused, ask {signed.bundle.site} for another"
            ) from None


def _build_unit(files: Path, unit: Path, signed: SignedBundle, plan: ImportPlan) -> None:
    """Put the files where trainings have them, with curve and manifest."""
    outputs = []
    for name, file in signed.bundle.files.items():
        target = unit / plan.paths[name]
        target.parent.mkdir(exist_ok=True)
        os.rename(files / name, target)
        atomic.sync(target.parent)
        outputs.append(Output(plan.paths[name], file.size, file.sha256))
    atomic.write_json(unit / CURVE, signed.bundle.curve)
    outputs += manifest.describe_outputs(unit, [CURVE])
    expert = expert_of(signed.key)
    seen = {} if expert is None else list_results(plan.inputs, expert)
    training = resolve_training(plan.experiment, signed.key)
    costs = training_costs(replace(training, flops_per_image=signed.entry.flops_per_image))
    whole = replace(
        plan.expected,
        outputs=sorted(outputs, key=lambda output: output.path),
        results=seen | costs,
        record={IMPORTED: _origin(signed)},
    )
    manifest.publish(unit, whole)


def _origin(signed: SignedBundle) -> dict[str, Any]:
    word = {name: value for name, value in asdict(signed.bundle.word).items() if value is not None}
    return {
        "site": signed.bundle.site,
        "fingerprint": signed.signer.fingerprint,
        "bundle": signed.bundle.number,
        "contract": {"id": signed.contract.id, "revision": signed.contract.revision},
        "word": word,
    }


def _build_record(record: Path, signed: SignedBundle) -> None:
    """Copy the signed list, which must still be the one that was checked."""
    for name, most in ((FILE, MAX_BYTES), (f"{FILE}.sig", checked_reads.RECORD_BYTES)):
        content = checked_reads.read_bytes(signed.folder / name, most, root=signed.folder)
        with atomic.replacing(record / name) as staged:
            staged.write_bytes(content)
    if read_signed_bundle(record) != (signed.bundle, signed.signer):
        raise UserError(f"{signed.folder / FILE}: changed while the bundle was copied; repeat this")


def _publish(run: RunDir, signed: SignedBundle, unit: Path, record: Path) -> None:
    """Rename record and unit to their places: the record first, as without the unit it means nothing."""
    target, kept = run.unit(signed.key), record_folder(run, signed.bundle)
    guarded_writes.make_folder(target.parent)
    guarded_writes.make_folder(kept.parent)
    with ExitStack() as held:
        if target.exists():
            # A job of this run may be training the same unit.
            held.enter_context(lease(target / ".lease", "hpcddm site import"))
        held.enter_context(_uninterrupted())
        guarded_writes.remove(kept)
        guarded_writes.move(record, kept)
        if holds_files(run, signed.key):
            replace_folder(run, signed.key, unit)
        else:
            guarded_writes.remove(target)
            guarded_writes.move(unit, target)
        atomic.sync(kept.parent)
        atomic.sync(target.parent)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the block is left."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
