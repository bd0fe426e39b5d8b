"""Links in units' folders: those of a sweep lead to the run that owns the work, all others are refused by name."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from hpcddm.config.vouching import SWEEP_FILE
from hpcddm.errors import UserError
from hpcddm.errors.printing import printable
from hpcddm.runs.layout import RunDir
from hpcddm.runs.training_states import CONTINUED


def link_above(run: RunDir, key: str, most: int = 8) -> str | None:
    """Return what is wrong with the way to a unit's folder; None where no link is on it but those of a sweep.

    In a sweep a unit's folder, or its stage's, may be a relative link to the same one of another setting's run.

    Args:
        run: The run.
        key: The unit, as stage/unit.
        most: Number of links of a sweep that may follow one another.
    """
    # As text: a run may have a thousand units, and status looks at all of them.
    root, inside = str(run.root), ""
    for part in key.removesuffix("/all").split("/"):
        inside = f"{inside}/{part}" if inside else part
        try:
            target = os.readlink(f"{root}/{inside}")
        except OSError:
            continue
        owner = _owner(run, inside, target)
        return link_above(owner, key, most - 1) if owner and most else complaint(run.root / inside)
    return None


def _owner(run: RunDir, inside: str, target: str) -> RunDir | None:
    """Return the setting's run to which a link of a sweep leads; None for any other link."""
    home, label = run.root.resolve().parent, label_in(target, inside)
    is_setting = label is not None and (home / SWEEP_FILE).is_file() and not (home / label).is_symlink()
    return RunDir(home / label) if label and is_setting else None


def label_in(target: str, inside: str) -> str | None:
    """Return the setting to which the link at a place inside a run leads, as a sweep makes it; None for any other."""
    up = "../" * (inside.count("/") + 1)
    label = target.removeprefix(up).removesuffix(f"/{inside}")
    is_label = "/" not in label and label not in ("", ".", "..")
    return label if is_label and target == f"{up}{label}/{inside}" else None


def link_at(run: RunDir, key: str) -> str | None:
    """Return what is wrong with the links on the way to a unit's folder, and in it; None where there is none.

    Folders in that of a unit `all` are other units of its stage, but for those of its training.
    """
    above, folder = link_above(run, key), run.unit(key)
    if above or not folder.is_dir():
        return above
    for place, inner, names, descriptor in os.fwalk(folder):
        if key.endswith("/all") and Path(place) == folder:
            inner[:] = [name for name in inner if name in CONTINUED]
        for name in (*inner, *names):
            # Another rank may have removed it meanwhile.
            with suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    return complaint(Path(place, name))
    return None


def require_no_links(run: RunDir, key: str) -> None:
    """Raise `UserError` for a unit with a link on the way to its folder, or in it, before anything is written there."""
    fault = link_at(run, key)
    if fault:
        raise UserError(f"{key}: {fault}")


def complaint(place: Path) -> str:
    """Return the complaint about a link, for the user."""
    return f"{printable(place, 4096)} is a link; put the files themselves there, or remove it"
