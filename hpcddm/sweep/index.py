"""What a sweep's folder knows of itself: `sweep.json`, and the links from each setting's run to what it shares."""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.loading import SWEEP_FILE
from hpcddm.rundir import atomic
from hpcddm.rundir.layout import RunDir

INSIDE = RunDir(Path())
"""Any run, for places as seen from its folder."""


@dataclass
class Index:
    """The settings of a sweep, and whose run holds the work that several of them share."""

    name: str = ""
    current: list[str] = field(default_factory=list)
    """The labels of the settings that the YAML file named last, in its order."""
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """All settings that ever were, by label."""
    owners: dict[str, str] = field(default_factory=dict)
    """For every identity of a unit the label of the setting in whose run it is made."""

    @property
    def left_out(self) -> list[str]:
        """Settings that were removed from the file; their runs stay."""
        return [label for label in self.settings if label not in set(self.current)]


def read_index(home: RunDir) -> Index:
    """The index of a sweep, without owners whose run somebody has removed; a new one where there is none.

    Raises `UserError` when the file is there and torn.
    """
    path = home.root / SWEEP_FILE
    content = atomic.read_json(path)
    if content is None:
        if path.exists():
            raise UserError(f"{path}: no readable JSON; remove it and run the sweep again: what is made is found")
        return Index()
    try:
        index = Index(**content)
    except TypeError:
        raise UserError(f"{path}: no index; remove it and run the sweep again: what is made is found") from None
    there = {entry.name for entry in os.scandir(home.root) if entry.is_dir()}
    index.owners = {identity: label for identity, label in index.owners.items() if label in there}
    return index


def write_index(index: Index, home: RunDir) -> None:
    """Store the index."""
    atomic.write_json(home.root / SWEEP_FILE, asdict(index))


def link(run: RunDir, owners: Mapping[str, str]) -> None:
    """Let the folders of units that other settings own, and those of their logs, be relative links to theirs.

    owners: unit -> label. A stage that one other setting owns as a whole is one link. Nothing but links is replaced.
    """
    root, own = str(run.root), run.root.name
    stages: dict[str, dict[str, str]] = defaultdict(dict)
    for key, owner in owners.items():
        stages[key.split("/")[0]][key] = owner
    for stage, units in stages.items():
        labels = set(units.values())
        for place in (RunDir.unit, RunDir.logs):
            folder = place(INSIDE, stage).as_posix()
            together = len(labels) == 1 and own not in labels
            if together and _point(root, folder, next(iter(labels))):
                continue
            _point(root, folder, None)
            for key, owner in units.items():
                _point(root, place(INSIDE, key).as_posix(), None if owner == own else owner)


def _point(root: str, inside: str, owner: str | None) -> bool:
    """Make a place in a setting's run a link to the same place in its owner's, or, without one, no link at all.

    Says whether it is as wanted now: a folder that is there stays. Strings, for a large sweep has thousands of links.
    """
    path = f"{root}/{inside}"
    wanted = f"{'../' * (inside.count('/') + 1)}{owner}/{inside}" if owner else None
    try:
        if os.readlink(path) == wanted:
            return True
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        return wanted is None
    if wanted:
        try:
            os.symlink(wanted, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path))
            os.symlink(wanted, path)
    return True
