"""Index of a sweep's folder: `sweep.json`, and the links from each setting's run to the work that it shares."""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcddm.config.vouching import SWEEP_FILE
from hpcddm.errors import UserError, require
from hpcddm.files import atomic, reading
from hpcddm.files.reading import Unreadable
from hpcddm.runs.layout import RunDir
from hpcddm.runs.links import complaint, label_in

INSIDE = RunDir(Path())
"""Run with an empty root, for paths relative to a run's folder."""


@dataclass
class Index:
    """Settings of a sweep, and the owners of the work that several of them share."""

    name: str = ""
    current: list[str] = field(default_factory=list)
    """Labels of the settings that the YAML file named last, in its order."""
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings by label, those removed from the file included."""
    owners: dict[str, str] = field(default_factory=dict)
    """Identity of a unit -> label of the setting in whose run it is made."""

    @property
    def left_out(self) -> list[str]:
        """Settings that were removed from the file; their runs stay."""
        return [label for label in self.settings if label not in set(self.current)]


def read_index(home: RunDir) -> Index:
    """Read the index of a sweep, without owners whose run was removed; a new one where there is none.

    Raises `UserError` when the file is damaged.
    """
    path = home.root / SWEEP_FILE
    try:
        index: Index | None = reading.read_json(path, Index)
    except Unreadable as error:
        again = "remove it and run the sweep again: what is made is found"
        raise UserError(f"{path}: {error.reason}; {again}") from None
    if index is None:
        return Index()
    folders = {entry.name for entry in os.scandir(home.root) if entry.is_dir()}
    index.owners = {identity: label for identity, label in index.owners.items() if label in folders}
    return index


def write_index(index: Index, home: RunDir) -> None:
    """Store the index."""
    atomic.write_json(home.root / SWEEP_FILE, asdict(index))


def link(run: RunDir, owners: Mapping[str, str]) -> None:
    """Make the folders of units that other settings own, and of their logs, relative links to the owners'.

    owners: unit -> label. A stage that one other setting owns as a whole is one link. Nothing but links of a sweep is
    replaced; raises `UserError` for any other link in the way.
    """
    root, label = str(run.root), run.root.name
    for folder in (root, f"{root}/logs"):
        require(not os.path.islink(folder), complaint(Path(folder)))
    stages: dict[str, dict[str, str]] = defaultdict(dict)
    for key, owner in owners.items():
        stages[key.split("/")[0]][key] = owner
    for stage, units in stages.items():
        labels = set(units.values())
        for place in (RunDir.unit, RunDir.logs):
            folder = place(INSIDE, stage).as_posix()
            together = len(labels) == 1 and label not in labels
            if together and _point(root, folder, next(iter(labels))):
                continue
            _point(root, folder, None)
            for key, owner in units.items():
                _point(root, place(INSIDE, key).as_posix(), None if owner == label else owner)


def _point(root: str, inside: str, owner: str | None) -> bool:
    """Make a path in a setting's run a link to the same path in its owner's run; without an owner remove the link.

    Returns False where a folder stands in the way of a link. Paths are strings: a large sweep has thousands of links.
    """
    path = f"{root}/{inside}"
    target = f"{'../' * (inside.count('/') + 1)}{owner}/{inside}" if owner else None
    try:
        before = os.readlink(path)
        if before == target:
            return True
        require(label_in(before, inside) is not None, complaint(Path(path)))
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        return target is None
    if target:
        try:
            os.symlink(target, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path))
            os.symlink(target, path)
    return True
