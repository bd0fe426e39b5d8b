"""Reads of names and files that another node may have made or removed a moment ago.

An NFS client caches the presence and the absence of a name for half a minute and longer; listing the folder refreshes
its cache. Code that waits for a name, or relies on its absence, must read through this module.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcddm.files import checked_reads


def list_names(folder: Path) -> list[str]:
    """List the names in a folder as the server has them now; empty if it is missing, or hidden from this user."""
    try:
        return os.listdir(folder)
    except PermissionError:
        return []
    except (FileNotFoundError, NotADirectoryError):
        # It may be this folder whose own name was looked for too early.
        if folder.parent == folder or folder.name not in list_names(folder.parent):
            return []
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def exists(path: Path) -> bool:
    """Return True if the path exists now."""
    return path.name in list_names(path.parent)


def modified(path: Path) -> float:
    """Return the time at which a file was written, by the clock of its file system; 0.0 if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read_json(path: Path, kind: Any = Any, max_bytes: int = checked_reads.RECORD_BYTES) -> Any:
    """Read a JSON file as it is now; arguments and errors as those of `reading.read_json`."""
    _refresh(path)
    return checked_reads.read_json(path, kind, max_bytes)


def read_mapping(path: Path, shape: Any, max_bytes: int = checked_reads.RECORD_BYTES) -> dict[str, Any] | None:
    """Read a JSON mapping as it is now; arguments and errors as those of `reading.read_mapping`."""
    _refresh(path)
    return checked_reads.read_mapping(path, shape, max_bytes)


def _refresh(path: Path) -> None:
    with suppress(OSError):
        list_names(path.parent)
