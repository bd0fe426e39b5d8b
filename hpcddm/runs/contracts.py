"""Contracts that a run keeps: each revision in a folder of its own; the newest counts."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hpcddm.config import trusted_submissions
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.exchange import signed_folder
from hpcddm.exchange.contract import FILE, MAX_BYTES, Contract, read_contract
from hpcddm.files import atomic, checked_reads, guarded_writes
from hpcddm.files.checked_reads import Unreadable
from hpcddm.runs.files import CONTRACT
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir

STAGED = ".new-"
"""Prefix of a revision that is being copied; what a killed command left is removed by the next one."""


def revision_folder(run: RunDir, revision: int) -> Path:
    """Return the folder in which a run keeps a revision of its contract."""
    return run.root / CONTRACT / str(revision)


def current_folder(run: RunDir) -> Path | None:
    """Return the folder of the newest revision that counts in a run; None for a run without a contract.

    If this user has vouched for a coordinator, other coordinators' contracts in the folder do not count: they came with
    another run that was copied over this one.
    """
    return next(iter(_counted(run)), None)


def run_contract(run: RunDir) -> Contract | None:
    """Return the newest revision of the contract that counts in a run; None for a run without one.

    Raises:
        UserError: The contract is damaged.
    """
    folder = current_folder(run)
    return None if folder is None else read_contract(folder)[0]


def own_sites(run: RunDir) -> frozenset[str]:
    """Return the sites whose experts are trained in a run: as this user has vouched, else as its journal says."""
    folder = current_folder(run)
    known = frozenset[str]() if folder is None else _own_sites(run, folder)
    return known or _submitting_sites(run)


def accepted_keys(run: RunDir, site: str) -> frozenset[str]:
    """Return the keys, as text, whose bundles count for a site: those of all revisions that were not revoked."""
    contract = run_contract(run)
    kept = [read_contract(folder)[0] for folder in _counted(run)] if contract else []
    agreed = [
        one.sites[site]
        for one in kept
        if contract and site in one.sites and (one.id, one.coordinator) == (contract.id, contract.coordinator)
    ]
    return frozenset(one.key for one in agreed) - {one.key for one in agreed if one.is_revoked}


def vouched(contract: Contract, site: str) -> dict[str, str]:
    """Return what a user vouches for: the contract, its coordinator's key, and the site whose experts are trained."""
    return {"contract": contract.id, "coordinator": contract.sites[contract.coordinator].key, "site": site}


def vouch(run: RunDir, contract: Contract, site: str) -> None:
    """Note that this user trusts the coordinator of a contract, wherever the run is, and trains a site's experts in it.

    Args:
        run: The run.
        contract: Its contract.
        site: The site.
    """
    for place in (run.root, None):
        trusted_submissions.remember(place, vouched(contract, site))


def vouched_here(run: RunDir, site: str) -> list[dict[str, str]]:
    """Return what the jobs of a submission know of the revisions that this user has vouched for."""
    return [vouched(read_contract(folder)[0], site) for folder in _vouched_folders(run)]


def require_vouched(run: RunDir, site: str | None = None, trusted: str | None = None, is_dry_run: bool = False) -> None:
    """Check that this user has vouched for a coordinator in a run with a contract, or vouch for the one that is named.

    Args:
        run: The run.
        site: The site that submits; None for other commands.
        trusted: Fingerprint of the coordinator's key that the user names.
        is_dry_run: True to write nothing.

    Raises:
        UserError: Nobody has vouched for a contract here, or the key that is named has signed none.
        ConfigError: A key is named, and the run has no contract.
    """
    kept = [] if _vouched_folders(run) and trusted is None else [read_contract(folder) for folder in _folders(run)]
    named = [contract for contract, key in kept if site is not None and key.fingerprint == trusted]
    if named and site is not None:
        sites = named[0].sites
        require(site in sites, f"--site {site}: not a site of the contract; its sites: {', '.join(sites)}")
        if not is_dry_run:
            vouch(run, named[0], site)
    elif trusted is not None and kept:
        signed = "; ".join(dict.fromkeys(key.fingerprint for _, key in kept))
        reason = f"the contract of {run.root} is signed by {signed}"
        raise UserError(f"--trust {trusted}: {reason}; do not trust it, and ask the coordinator")
    elif kept:
        signers = "; ".join(dict.fromkeys(f"{contract.coordinator}, {key.fingerprint}" for contract, key in kept))
        raise UserError(
            f"{run.root}: its contract ({signers}) is not vouched for here; compare the fingerprint with the one that"
            " the coordinator tells you by another channel, then submit with --trust FINGERPRINT"
        )
    elif trusted is not None:
        raise ConfigError(f"--trust: {run.root} has no contract; name one with --contract, or leave this out")


def _folders(run: RunDir) -> list[Path]:
    """List the folders of all revisions, the newest first; raise `UserError` for a link in the place of one."""
    folders: list[Path] = []
    if not os.path.lexists(run.root / CONTRACT):
        return folders
    with suppress(FileNotFoundError), checked_reads.open_folder(run.root / CONTRACT, run.root) as opened:
        names = [name for name in os.listdir(opened) if name.isdecimal() and name.isascii()]
        folders = [revision_folder(run, number) for number in sorted(map(int, names), reverse=True)]
    if (linked := next((folder for folder in folders if folder.is_symlink()), None)) is not None:
        raise Unreadable(linked, "is a link")
    return folders


def _counted(run: RunDir) -> list[Path]:
    """List the folders of the revisions that count, the newest first; all where this user has vouched for none."""
    return _vouched_folders(run) or _folders(run)


def _vouched_folders(run: RunDir) -> list[Path]:
    return [folder for folder in _folders(run) if _own_sites(run, folder)]


def _own_sites(run: RunDir, folder: Path) -> frozenset[str]:
    """Return the sites that this user has vouched for with a contract; empty also for a contract that is damaged."""
    try:
        contract, _ = read_contract(folder)
    except UserError:
        return frozenset()
    here, anywhere = (
        frozenset(site for site in contract.sites if trusted_submissions.is_known(place, vouched(contract, site)))
        for place in (run.root, None)
    )
    # Who trains experts of several sites has several runs, and the journal tells which one has been moved.
    return here or anywhere & _submitting_sites(run) or anywhere


def _submitting_sites(run: RunDir) -> frozenset[str]:
    return frozenset(submission.site for submission in Journal(run.journal).submissions())


def require_agreed_inputs(contract: Contract | None, key: str, digests: Mapping[str, str]) -> None:
    """Check, before an expert is trained, that it is trained on what was agreed on.

    Args:
        contract: Contract of the run; None for a run without one.
        key: The expert's unit.
        digests: Digests of its inputs, as its manifest will have them.

    Raises:
        UserError: An input has another digest. The message names it.
    """
    if contract is None or key not in contract.experts:
        return
    agreed = contract.experts[key].inputs
    if changed := [name for name in sorted({*agreed, *digests}) if agreed.get(name) != digests.get(name)]:
        raise UserError(
            f"{key}: {changed[0]} is not what the contract says; the images or their features differ from the"
            " coordinator's: compare data.source, encoder and package versions, and ask the coordinator"
        )


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
    for leftover in kept.parent.glob(f"{STAGED}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    staged = kept.parent / f"{STAGED}{atomic.unique_suffix()}"
    try:
        guarded_writes.make_folder(staged)
        signed_folder.receive(folder, FILE, contract.files, staged, lambda size: None)
        for name in (FILE, f"{FILE}.sig"):
            text = checked_reads.read_bytes(folder / name, MAX_BYTES, root=folder).decode("ascii", "replace")
            atomic.write_text(staged / name, text)
        require(read_contract(staged)[0] == contract, f"{folder / FILE} has changed while it was read; repeat this")
        staged.rename(kept)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return kept
