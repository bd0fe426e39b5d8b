"""Links in units' folders: a sweep links shared units to the run that owns them; any other link is refused."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from hpcddm.errors import require
from hpcddm.errors.printing import printable
from hpcddm.files.guarded_writes import SWEEP_FILE
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.training_states import CONTINUED

FINISHED_RUN = "run"
"""Link in a sweep's folder to the finished run whose evaluation it repeats; settings' labels differ from it."""


def link_above(run: RunDir, key: str, most: int = 8) -> str | None:
    """Check the path to a unit's folder for links.

    In a sweep, the folder of a unit or of its stage may be a relative link to the same folder in another setting's run,
    or in the finished run that the sweep evaluates.

    Args:
        run: The run.
        key: The unit, as `stage/unit`.
        most: Maximum number of a sweep's links that may follow one another.

    Returns:
        A message about a link that does not belong to a sweep; None without such a link.
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
        return link_above(owner, key, most - 1) if owner and most else refusal_reason(run.root / inside)
    return None


def _owner(run: RunDir, inside: str, target: str) -> RunDir | None:
    """Return the setting's run to which a sweep's link points; None for any other link."""
    home, label = run.root.resolve().parent, label_in(target, inside)
    if label is None or not (home / SWEEP_FILE).is_file():
        return None
    return RunDir(home / label) if label == FINISHED_RUN or not (home / label).is_symlink() else None


def label_in(target: str, inside: str) -> str | None:
    """Return the label of the setting to which a sweep's link points; None for any other link.

    Args:
        target: Target of the link, as `os.readlink` returns it.
        inside: Path of the link, relative to the run.
    """
    up = "../" * (inside.count("/") + 1)
    label = target.removeprefix(up).removesuffix(f"/{inside}")
    is_label = "/" not in label and label not in ("", ".", "..")
    return label if is_label and target == f"{up}{label}/{inside}" else None


def link_at(run: RunDir, key: str) -> str | None:
    """Check the path to a unit's folder and the folder's contents for links.

    The folder of a unit `all` contains the folders of its stage's other units. These are not checked.

    Returns:
        A message about a link that does not belong to a sweep; None without such a link.
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
                    return refusal_reason(Path(place, name))
    return None


def require_no_links(run: RunDir, key: str) -> None:
    """Check a unit's folder for links before anything is written there.

    Raises:
        UserError: If there is a link in the folder, or a link other than a sweep's on the path to it.
    """
    fault = link_at(run, key)
    require(fault is None, f"{key}: {fault}")
    require_own(run, key)


def require_own(run: RunDir, key: str) -> None:
    """Check that a unit that is written or handed on is not in the finished run that a sweep evaluates.

    Raises:
        UserError: If it is there.
    """
    folder = run.unit(key).resolve()
    is_own = run.root.resolve().parent in folder.parents
    require(is_own, f"{key}: this sweep takes it from {folder}; name the run with that folder instead")


def refusal_reason(place: Path) -> str:
    """Return the error message about a link."""
    return f"{printable(place, 4096)} is a link; put the files themselves there, or remove it"
