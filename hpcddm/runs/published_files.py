"""Files of a published ensemble from which trainings and clusterings of other runs start."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpcddm.errors import UserError, require
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import InnerPath, OpenRecord, Unreadable
from hpcddm.runs.files import ENSEMBLE


@dataclass(frozen=True)
class ListedNetwork(OpenRecord):
    """Entry of a network."""

    file: InnerPath


@dataclass(frozen=True)
class ListedDigest(OpenRecord):
    """Entry of a file."""

    sha256: str


@dataclass(frozen=True)
class PublishedFiles(OpenRecord):
    """Types of the parts of `ensemble.json` that list its files."""

    networks: dict[str, ListedNetwork]
    files: dict[InnerPath, ListedDigest]


def is_published(folder: Path) -> bool:
    """Return True if a folder has the description of a published ensemble."""
    return (folder / ENSEMBLE).is_file()


def network_file(folder: Path, key: str, submitted: str | None, place: str) -> tuple[Path, str]:
    """Return the file of a network, and its SHA-256.

    Args:
        folder: Folder of the ensemble.
        key: Unit of the network, as `stage/unit`.
        submitted: SHA-256 of the description when the run was submitted; None to skip the check.
        place: Dotted key of the setting that names the ensemble, for the error.

    Raises:
        UserError: The description is damaged or has changed, or has no such network.
    """
    listed = _read(folder, submitted)
    if key not in listed.networks:
        raise UserError(
            f"{place}: {folder} has no {key}, but {_some(listed.networks)}; to start from one of its networks name"
            f" the file with 'weights', such as {folder / next(iter(listed.networks.values())).file}"
        )
    return _listed(folder, listed, listed.networks[key].file)


def published_file(folder: Path, name: str) -> tuple[Path, str]:
    """Return a file of an ensemble, and its SHA-256; raises `UserError` for one that is not listed."""
    return _listed(folder, _read(folder, None), name)


def _listed(folder: Path, listed: PublishedFiles, name: str) -> tuple[Path, str]:
    require(name in listed.files, f"{folder / ENSEMBLE}: does not list {name}; fetch the folder again")
    return folder / name, listed.files[name].sha256


def _read(folder: Path, submitted: str | None) -> PublishedFiles:
    path = folder / ENSEMBLE
    try:
        content = checked_reads.read_bytes(path, checked_reads.MANIFEST_BYTES, root=folder)
        listed: PublishedFiles = checked_reads.parse_json(content, PublishedFiles)
    except FileNotFoundError:
        raise UserError(f"{path}: is missing; name a folder that 'hpcddm publish' wrote") from None
    except (Unreadable, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'reason', error)}; fetch the folder again") from None
    atomic.require_submitted(path, submitted, hashlib.sha256(content).hexdigest())
    return listed


def _some(keys: Iterable[str]) -> str:
    shown = list(keys)
    return f"{', '.join(shown[:8])}{', ...' if len(shown) > 8 else ''}"
