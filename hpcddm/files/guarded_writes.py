"""Files and folders inside runs, made, moved and removed by descriptors: no link below a run's folder is followed.

What somebody else copied into a run may be a link to files of the user, and may become one between a check and the use.
Also: private folders on disks that several users share.
"""

import ctypes
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable

EXPERIMENT_FILE, SWEEP_FILE = MARKER_FILES = ("experiment.json", "sweep.json")
"""Files that mark the folder of a run, and of a sweep."""
RENAME_EXCHANGE = 2
"""Flag of renameat2(2)."""
_guarded: set[Path] = set()


def guard(root: Path) -> None:
    """Let this process follow no link below a run's folder where it writes; the folder's own way may have links."""
    _guarded.update((Path(os.path.abspath(root)), root.resolve()))


def enclosing_run(place: Path) -> Path | None:
    """Return the innermost run or sweep that a file or a folder is in, or is; None where it is in none.

    Both count: where it is, and where the links on the way to it lead.
    """
    for way in dict.fromkeys(ways_to(place)):
        for folder in (way, *way.parents):
            if any(os.path.lexists(folder / mark) for mark in MARKER_FILES):
                return Path(os.path.realpath(folder))
    return None


def ways_to(place: Path) -> tuple[Path, Path]:
    """Return where a file or a folder is, and where the links on the way to it lead."""
    return Path(os.path.abspath(place)), Path(os.path.realpath(place))


@contextmanager
def open_folder(folder: Path, root: Path | None = None, make: bool = False) -> Iterator[int]:
    """Open a folder and yield its descriptor, for calls with `dir_fd`.

    Args:
        folder: The folder.
        root: A folder above it, below which no link is followed; by default the guarded one.
        make: True to make it, and those above it, where there is none.

    Raises:
        FileNotFoundError: Where there is nothing, and `make_folder` is False.
        Unreadable: Where a part of the way is a link or not a folder.
    """
    place = Path(os.path.abspath(folder))
    above = _root_of(place) if root is None else Path(os.path.abspath(root))
    if make:
        _make(place, above)
    with checked_reads.open_folder(place, above) as descriptor:
        yield descriptor


def make_folder(folder: Path) -> None:
    """Make a folder and its parents if they do not exist; errors as those of `opened`."""
    with open_folder(folder, make=True):
        pass


def open_file(path: Path, flags: int) -> int:
    """Open a regular file to write, or make it, and return its descriptor; no link is followed at its end.

    Raises:
        OSError: As `os.open`.
        Unreadable: Where a part of the way is a link, or the file is not a regular one or has other names (hard links).
    """
    with open_folder(path.parent) as folder:
        try:
            descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=folder)
        except OSError:
            if fault := _fault(path, folder):
                raise fault from None
            raise
        if reason := refusal_reason(os.fstat(descriptor)):
            os.close(descriptor)
            raise Unreadable(path, reason)
        return descriptor


def refusal_reason(status: os.stat_result) -> str | None:
    """Return why something is not to be written in place; None for a file that may be."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a file"
    # An archive can give a file of a unit a second name (a hard link), through which writes would go unnoticed.
    return "has another name, too (a hard link)" if status.st_nlink > 1 else None


def remove(path: Path, root: Path | None = None) -> None:
    """Remove a file, or a folder with its content, without following links; do nothing if the path does not exist.

    Raises:
        OSError: As `shutil.rmtree`.
        Unreadable: Where it is a link, or a part of the way is one.
    """
    with suppress(FileNotFoundError), open_folder(path.parent, root) as folder:
        mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            shutil.rmtree(path.name, dir_fd=folder)
        elif fault := _fault(path, folder):
            raise fault
        else:
            os.unlink(path.name, dir_fd=folder)


def move(source: Path, target: Path) -> None:
    """Rename a file or a folder within a run; `target` must not exist, unless it is a file."""
    with open_folder(source.parent) as before, open_folder(target.parent) as after:
        os.rename(source.name, target.name, src_dir_fd=before, dst_dir_fd=after)


def exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two files or folders within a run in one step; return False if it cannot be done here."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    with open_folder(first.parent) as before, open_folder(second.parent) as after:
        names = os.fsencode(first.name), os.fsencode(second.name)
        return call is not None and call(before, names[0], after, names[1], RENAME_EXCHANGE) == 0


def _root_of(place: Path) -> Path | None:
    """Return the outermost guarded folder that holds a place; None where none does."""
    above = [root for root in _guarded if place.is_relative_to(root)]
    return min(above, key=lambda root: len(root.parts), default=None)


def _make(place: Path, root: Path | None) -> None:
    if root is None or not place.is_relative_to(root) or place == root:
        place.mkdir(parents=True, exist_ok=True)
        return
    with suppress(FileNotFoundError), checked_reads.open_folder(place, root):
        return
    _make(place.parent, root)
    with checked_reads.open_folder(place.parent, root) as above, suppress(FileExistsError):
        os.mkdir(place.name, dir_fd=above)


def _fault(path: Path, folder: int) -> Unreadable | None:
    """Return the error for a link in an open folder; None where there is none of the name."""
    with suppress(OSError):
        if stat.S_ISLNK(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
            return Unreadable(path, "is a link")
    return None


def make_private_folder(folder: Path) -> bool:
    """Make a folder that only this user can write; return False where another one has that name."""
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    return is_private_folder(folder)


def is_private_folder(folder: Path) -> bool:
    """Tell if a folder is this user's and nobody else can write it; links are not followed."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_mine and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
