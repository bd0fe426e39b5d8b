"""Training states of a unit, as far as they can be read without torch: which there are, and of which training."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from hpcddm.files import fresh, inside, reading
from hpcddm.files.reading import Unreadable
from hpcddm.runs.manifest import SNAPSHOTS
from hpcddm.runs.results import require_flops

FOLDER, STATE = "state", "state.json"
FORMAT = 5
"""Format of a state's `state.json`; up to format 4 DeepSpeed's own files lay beside it."""
PREFIX = "images-"
START = "start.json"
"""File of a unit that says which weights its training started from."""
CONTINUED = (FOLDER, SNAPSHOTS, START, "tensorboard")
"""Folders and files of a training with which a longer one goes on."""


@dataclass(frozen=True)
class Written:
    """One file of a state, as reported by the rank that wrote it; the name is relative to the state's folder."""

    name: str
    rank: int
    size: int
    sha256: str

    def __post_init__(self) -> None:
        """Raise `ValueError` for a name that leads out of the folder, or a number that cannot be."""
        reading.require_inside(self.name)
        reading.require_counts(self.rank, self.size)


@dataclass(frozen=True)
class Snapshot:
    """Types of what a state says of a snapshot that was taken: its images, and the SHA-256 of its files by name."""

    images: int
    files: dict[str, str]

    def __post_init__(self) -> None:
        """Raise `ValueError` for a name that leads out of the folder, or a number that cannot be."""
        reading.require_counts(self.images)
        for name in self.files:
            reading.require_inside(name)


@dataclass(frozen=True)
class Started:
    """Types of what a unit says of the weights that its training started from; None for unknown images and FLOPs."""

    sha256: str
    source: str
    images: int | None
    train_flops: int | None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number below zero."""
        reading.require_counts(self.images or 0)
        require_flops(self.train_flops or 0)


@dataclass(frozen=True)
class Loop:
    """Types of the progress of a training in its state, as `training.meters.Progress` has it."""

    images: int = 0
    loss_sums: list[float] = field(default_factory=list)
    loss_images: int = 0
    skipped: int = 0
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    scaler: dict[str, float] = field(default_factory=dict)
    curve: list[tuple[int, float]] = field(default_factory=list)
    resources: list[tuple[int, int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that cannot be, and a snapshot that has none."""
        reading.require_counts(self.images, self.loss_images, self.skipped)
        if not all(name.isascii() and name.isdecimal() for name in self.snapshots):
            raise ValueError("snapshots: has a name that is not a number")


@dataclass(frozen=True)
class Description:
    """Types of a state's `state.json`; that of an earlier format may have other files, or none."""

    __pydantic_config__: ClassVar = reading.OPEN

    images: int
    trajectory: str
    format: int = 0
    world_size: int = 1
    files: list[Written] | dict[str, Any] = field(default_factory=list)
    loop: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that cannot be, and for files of another format than it says."""
        reading.require_counts(self.images)
        if self.format == FORMAT and isinstance(self.files, dict):
            raise ValueError("files are those of an earlier format")
        if self.format == FORMAT:
            reading.parse(json.dumps(self.loop).encode(), Loop)


def name_of(images: int) -> str:
    """Return the name of the folder of the state at so many images; later ones sort behind it."""
    return f"{PREFIX}{images:012d}"


def of_training(folder: Path, trajectory: str, most_images: int | None = None) -> list[tuple[Path, dict[str, Any]]]:
    """List a unit's states, oldest first, without those of a training with other settings.

    folder: the unit's `state/`; no link is followed there.
    most_images: also without those of a longer training.
    """
    folders = _folders(folder)
    stored = [(path, _read(path)) for path in folders]
    own = [(path, state) for path, state in stored if state and state["trajectory"] == trajectory]
    return [(path, state) for path, state in own if most_images is None or state["images"] <= most_images]


def close(folder: Path, trajectory: str, images: int, keep: bool) -> None:
    """Remove the states of a training that ended at so many images but the last, which more images would continue.

    keep: False to remove that one as well.
    """
    last = [path for path, _ in of_training(folder, trajectory, images)][-1:] if keep else []
    for path in folder.iterdir() if last else [folder]:
        if path not in last:
            with suppress(OSError):
                inside.remove(path, folder.parent)


def faults(folder: Path) -> list[str]:
    """List the errors about states whose description is damaged; folder: the unit's `state/`."""
    errors = []
    for path in _folders(folder):
        try:
            fresh.read_mapping(path / STATE, Description, reading.RESULT_BYTES)
        except Unreadable as error:
            errors.append(str(error))
    return errors


def _folders(folder: Path) -> list[Path]:
    listed = [] if folder.is_symlink() else fresh.names(folder)
    return sorted(path for name in listed if name.startswith(PREFIX) and not (path := folder / name).is_symlink())


def _read(folder: Path) -> dict[str, Any] | None:
    """Read a state's description; None where it is missing or damaged, as that of a state that was never published."""
    try:
        return fresh.read_mapping(folder / STATE, Description, reading.RESULT_BYTES)
    except Unreadable:
        return None
