"""Training states of a unit: their list, descriptions and seals, read without torch."""

import hashlib
import hmac
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from hpcddm.errors import UserError, require
from hpcddm.errors.printing import printable
from hpcddm.files import checked_reads, guarded_writes, nfs_reads
from hpcddm.files.checked_reads import Count, InnerPath, OpenRecord, Rule, Unreadable, usable
from hpcddm.runs.files import SNAPSHOTS
from hpcddm.runs.result_types import Flops

FOLDER, STATE = "state", "state.json"
FORMAT = 5
"""Format of a state's `state.json`; up to format 4, DeepSpeed's files were next to it."""
PREFIX = "images-"
START = "initial_weights.json"
"""File that describes the weights from which a unit's training started."""
SEAL = "seal"
"""Key of the seal in a state's description."""
SEAL_VARIABLE = "HPCDDM_STATE_KEY"
"""Environment variable of a job: id of the contract and key of its seals."""
CONTINUED = (FOLDER, SNAPSHOTS, START, "tensorboard")
"""Folders and files of a training from which a longer training continues."""


@dataclass(frozen=True)
class StateFile:
    """One file of a state, as reported by the rank that wrote it; the name is relative to the state's folder."""

    name: InnerPath
    rank: Count
    size: Count
    sha256: str


@dataclass(frozen=True)
class SnapshotRecord:
    """Types of a state's entry about a snapshot: its images, and the SHA-256 of its files by name."""

    images: Count
    files: dict[InnerPath, str]


@dataclass(frozen=True)
class StartRecord:
    """Types of a unit's entry about its initial weights; None for unknown images and FLOPs."""

    sha256: str
    source: str
    images: Count | None
    train_flops: Flops | None


@dataclass(frozen=True)
class StateSeal:
    """Seal of the states of one unit in a run with a contract; `key` is None where this user has none here."""

    unit: str
    key: bytes | None = field(repr=False)

    def sealed(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state's description with its seal."""
        return state if self.key is None else state | {SEAL: self._code(self.key, state)}

    def holds(self, state: dict[str, Any]) -> bool:
        """Tell if jobs of this user saved a state of this unit under this contract."""
        seal = state.get(SEAL)
        if self.key is None or not isinstance(seal, str):
            return False
        return hmac.compare_digest(seal.encode(errors="replace"), self._code(self.key, state).encode())

    def require_own(self, states: Sequence[tuple[Path, dict[str, Any]]]) -> None:
        """Raise `UserError` with folder and next step if this user's jobs have not saved one of some states."""
        foreign = [(folder, state) for folder, state in states if not self.holds(state)]
        if not foreign:
            return
        folder, state = foreign[-1]
        # States of one's own, if there are any, stay in place.
        place = printable(folder if len(foreign) < len(states) else folder.parent, 4096)
        known = "another account, contract or expert" if SEAL in state else "before the contract, or in another run"
        raise UserError(
            f"{self.unit}: your jobs have not saved the training state {printable(folder.name)} under this contract"
            f" ({known}), so it is not loaded: go on with the account that began it, or move {place} away to train"
            " without it"
        )

    def require_key(self) -> None:
        """Raise `UserError` if a job could not seal its states."""
        require(
            self.key is not None,
            f"{self.unit}: this job has no key for its training states ({SEAL_VARIABLE} is not set, and your secret is"
            " not seen here): submit again, and leave --export out of the site's extra_sbatch",
        )

    def _code(self, key: bytes, state: dict[str, Any]) -> str:
        content = {"unit": self.unit, "state": {name: value for name, value in state.items() if name != SEAL}}
        return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def require_snapshots(snapshots: dict[str, Any]) -> None:
    """Raise `ValueError` for a snapshot whose name is not a number, or that is not a `SnapshotRecord`."""
    if not all(name.isascii() and name.isdecimal() for name in snapshots):
        raise ValueError("has a name that is not a number")
    checked_reads.parse_json(json.dumps(snapshots).encode(), dict[str, SnapshotRecord])


@dataclass
class LoopProgress:
    """Progress of a training, stored with every state."""

    images: Count = 0
    loss_sums: list[float] = field(default_factory=list)
    """Sum of losses since the last log per rank; a resumed training continues these sums."""
    loss_images: Count = 0
    """Images of each rank since the last log."""
    skipped: Count = 0
    """Number of steps skipped because a gradient was not finite."""
    skipped_in_a_row: Count = 0
    """Number of skipped steps since the last one that was applied."""
    first_loss: float | None = None
    """Median loss of the first step, of this rank's images; the first one that is finite."""
    last_loss: float | None = None
    """Median loss of the last step before a state was saved."""
    snapshots: Annotated[dict[str, dict[str, Any]], Rule(require_snapshots)] = field(default_factory=dict)
    """Images and SHA-256 of every snapshot taken, by its number; complete on rank 0 only."""
    scaler: dict[str, float] = field(default_factory=dict)
    """State of the fp16 loss scaler; empty in other precisions."""
    curve: list[tuple[int, float]] = field(default_factory=list)
    """Mean losses as (images seen, loss), one for each log."""
    resources: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Resources as (images seen, ranks, stage of ZeRO, micro batches): at the start, and at each change."""


@dataclass(frozen=True)
class StateDescription(OpenRecord):
    """Types of a state's `state.json`; earlier formats may list other files or none."""

    images: Count
    trajectory: str
    format: int = 0
    world_size: int = 1
    compiled: bool = False
    """True if the blocks of the network were compiled in the last step."""
    files: list[StateFile] | dict[str, Any] = field(default_factory=list)
    loop: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `ValueError` for files or a progress that do not match the format."""
        if self.format == FORMAT and isinstance(self.files, dict):
            raise ValueError("files are those of an earlier format")
        if self.format == FORMAT:
            checked_reads.parse_json(json.dumps(self.loop).encode(), LoopProgress)


def folder_name(images: int) -> str:
    """Return the name of the folder of the state at `images` images; names sort by number."""
    return f"{PREFIX}{images:012d}"


def list_states(folder: Path, trajectory: str, most_images: int | None = None) -> list[tuple[Path, dict[str, Any]]]:
    """List the states of a unit's training, oldest first.

    Args:
        folder: The unit's folder `state/`; links in it are not followed.
        trajectory: Hash of the training's settings and inputs; states with another hash are omitted.
        most_images: Maximum number of images; states of a longer training are omitted. None for no maximum.

    Returns:
        The folder and the description of each state.
    """
    stored = [(path, usable(_read, path)) for path in _folders(folder)]
    matching = [(path, state) for path, state in stored if state and state["trajectory"] == trajectory]
    return [(path, state) for path, state in matching if most_images is None or state["images"] <= most_images]


def remove_earlier(folder: Path, trajectory: str, images: int, keep: bool) -> None:
    """Remove the states of a finished training, except the last one.

    Args:
        folder: The unit's folder `state/`.
        trajectory: Hash of the training's settings and inputs.
        images: Number of images at the end of the training.
        keep: True to keep the last state, from which a longer training could continue.
    """
    last = [path for path, _ in list_states(folder, trajectory, images)][-1:] if keep else []
    for path in folder.iterdir() if last else [folder]:
        if path not in last:
            with suppress(OSError):
                guarded_writes.remove(path, folder.parent)


def description_errors(folder: Path) -> list[str]:
    """List the errors about damaged descriptions of states in a unit's folder `state/`."""
    errors = []
    for path in _folders(folder):
        try:
            _read(path)
        except Unreadable as error:
            errors.append(str(error))
    return errors


def _folders(folder: Path) -> list[Path]:
    listed = [] if folder.is_symlink() else nfs_reads.list_names(folder)
    return sorted(path for name in listed if name.startswith(PREFIX) and not (path := folder / name).is_symlink())


def _read(folder: Path) -> dict[str, Any] | None:
    """Read a state's description; None if it is missing, as for an unpublished state."""
    return nfs_reads.read_mapping(folder / STATE, StateDescription, checked_reads.RESULT_BYTES)
