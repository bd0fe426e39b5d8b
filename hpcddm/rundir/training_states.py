"""Training states of a unit, as far as they can be read without torch: which there are, and of which training."""

from contextlib import suppress
from pathlib import Path
from typing import Any, TypeGuard

from hpcddm.rundir import fresh, inside
from hpcddm.rundir.manifest import SNAPSHOTS

FOLDER, STATE = "state", "state.json"
FORMAT = 5
"""Format of a state's `state.json`; up to format 4 DeepSpeed's own files lay beside it."""
PREFIX = "images-"
START = "start.json"
"""File of a unit that says which weights its training started from."""
CONTINUED = (FOLDER, SNAPSHOTS, START, "tensorboard")
"""Folders and files of a training with which a longer one goes on."""


def name_of(images: int) -> str:
    """Return the name of the folder of the state at so many images; later ones sort behind it."""
    return f"{PREFIX}{images:012d}"


def of_training(folder: Path, trajectory: str, most_images: int | None = None) -> list[tuple[Path, dict[str, Any]]]:
    """List a unit's states, oldest first, without those of a training with other settings.

    folder: the unit's `state/`; no link is followed there.
    most_images: also without those of a longer training.
    """
    listed = [] if folder.is_symlink() else fresh.names(folder)
    folders = sorted(path for name in listed if name.startswith(PREFIX) and not (path := folder / name).is_symlink())
    stored = [(path, fresh.read_json(path / STATE)) for path in folders]
    own = [(path, state) for path, state in stored if _is_of(state, trajectory)]
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


def _is_of(state: Any, trajectory: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(state, dict) and state.get("trajectory") == trajectory
