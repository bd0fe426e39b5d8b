"""Index of a sweep's folder: `sweep.json`, and the links from each setting's run to the units that it shares."""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError, require
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.guarded_writes import SWEEP_FILE
from hpcddm.runs.links import FINISHED_RUN, label_in, refusal_reason
from hpcddm.runs.run_dir import RunDir

INSIDE = RunDir(Path())
"""Run with an empty root, for paths relative to a run's folder."""


@dataclass
class SweepIndex:
    """Settings of a sweep, and the owners of the units that several settings share."""

    name: str = ""
    current: list[str] = field(default_factory=list)
    """Labels of the settings in the YAML file as last submitted, in its order."""
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings by label, including settings removed from the file."""
    owners: dict[str, str] = field(default_factory=dict)
    """Label of the setting whose run computes a unit, by the unit's identity."""

    @property
    def left_out(self) -> list[str]:
        """Labels of the settings removed from the file; their runs stay."""
        return [label for label in self.settings if label not in set(self.current)]


def read_index(home: RunDir) -> SweepIndex:
    """Read the index of a sweep, without owners whose run was removed.

    Args:
        home: Folder of the sweep.

    Returns:
        The index; an empty one if the file does not exist.

    Raises:
        UserError: If the file is damaged.
    """
    path = home.root / SWEEP_FILE
    try:
        index: SweepIndex | None = checked_reads.read_json(path, SweepIndex)
    except Unreadable as error:
        again = "remove it and run the sweep again: what is made is found"
        raise UserError(f"{path}: {error.reason}; {again}") from None
    if index is None:
        return SweepIndex()
    folders = {entry.name for entry in os.scandir(home.root) if entry.is_dir(follow_symlinks=False)}
    index.owners = {identity: label for identity, label in index.owners.items() if label in folders}
    return index


def write_index(index: SweepIndex, home: RunDir) -> None:
    """Store the index in a sweep's folder."""
    atomic.write_json(home.root / SWEEP_FILE, asdict(index))


def link_finished_run(home: RunDir, run: RunDir) -> None:
    """Link the finished run whose evaluation a sweep repeats; its units' links lead through this one.

    Raises:
        UserError: If there is something else at the link's path.
    """
    link, target = home.root / FINISHED_RUN, os.path.relpath(run.root.resolve(), home.root.resolve())
    require(link.is_symlink() or not link.exists(), f"{link} must be a link to the sweep's run; remove it")
    if not link.is_symlink() or os.readlink(link) != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def link_shared_units(run: RunDir, owners: Mapping[str, str]) -> None:
    """Replace the folders and logs of units that other settings own by relative links to the owners' folders.

    If one other setting owns a whole stage, the stage's folder becomes the link. Only links of a sweep are replaced.

    Args:
        run: Run of one setting.
        owners: Label of the owning setting, by unit.

    Raises:
        UserError: If any other link is at one of these paths.
    """
    root, label = str(run.root), run.root.name
    for folder in (root, f"{root}/logs"):
        require(not os.path.islink(folder), refusal_reason(Path(folder)))
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
    """Make a path in a setting's run a link to the same path in its owner's run; without an owner, remove the link.

    Return False if there is already a folder at the path. Paths are strings: a large sweep has thousands of links.
    """
    path = f"{root}/{inside}"
    target = f"{'../' * (inside.count('/') + 1)}{owner}/{inside}" if owner else None
    try:
        if (before := os.readlink(path)) == target:
            return True
        require(label_in(before, inside) is not None, refusal_reason(Path(path)))
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
