"""Contracts that a run keeps: each revision in a folder of its own; the newest counts."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.exchange import signed_folder
from hpcddm.exchange.contract import FILE, MAX_BYTES, Contract, read_contract
from hpcddm.files import atomic, checked_reads, guarded_writes
from hpcddm.runs.run_dir import RunDir

FOLDER = "contract"


def revision_folder(run: RunDir, revision: int) -> Path:
    """Return the folder in which a run keeps a revision of its contract."""
    return run.root / FOLDER / str(revision)


def current_folder(run: RunDir) -> Path | None:
    """Return the folder of the newest revision that a run has; None for a run without a contract."""
    with suppress(FileNotFoundError):
        revisions = [int(name) for name in os.listdir(run.root / FOLDER) if name.isdecimal() and name.isascii()]
        return revision_folder(run, max(revisions)) if revisions else None
    return None


def run_contract(run: RunDir) -> Contract | None:
    """Return the newest revision of the contract that a run keeps; None for a run without one.

    Raises:
        UserError: The contract is damaged.
    """
    folder = current_folder(run)
    return None if folder is None else read_contract(folder)[0]


def keep_contract(folder: Path, contract: Contract, run: RunDir) -> Path:
    """Copy a contract and its files into a run, at once, and return the folder there.

    Raises:
        UserError: A file is missing, not listed, or not what was signed; or the run has another such revision.
    """
    kept = revision_folder(run, contract.revision)
    if kept.exists():
        if read_contract(kept)[0] != contract:
            raise UserError(f"{folder}: not the revision {contract.revision} of {kept}; refused, ask the coordinator")
        return kept
    staged = kept.parent / f".new-{atomic.unique_suffix()}"
    try:
        guarded_writes.make_folder(staged)
        signed_folder.receive(folder, FILE, contract.files, staged, lambda size: None)
        for name in (FILE, f"{FILE}.sig"):
            text = checked_reads.read_bytes(folder / name, MAX_BYTES, root=folder).decode("ascii", "replace")
            atomic.write_text(staged / name, text)
        if read_contract(staged)[0] != contract:
            raise UserError(f"{folder / FILE} has changed while it was read; repeat this")
        staged.rename(kept)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return kept
