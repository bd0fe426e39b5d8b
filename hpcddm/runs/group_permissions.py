"""Shared runs: all files in a setgid, group-writable folder are written with group permissions."""

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from hpcddm.files import guarded_writes
from hpcddm.files.atomic import nearest_existing

GROUP_BITS = 0o070


def prepare_writes(folder: Path) -> None:
    """Prepare this process to write into a run's folder: never through links, and for its group where it is shared.

    The permissions of other users do not change, and none do where the folder is not setgid and group-writable.

    Args:
        folder: The folder; if it does not exist, its nearest existing parent counts.
    """
    mode = nearest_existing(folder).stat().st_mode
    if mode & stat.S_ISGID and mode & stat.S_IWGRP:
        os.umask(os.umask(0o077) & ~GROUP_BITS)
    guarded_writes.guard(folder)


def current_user() -> str:
    """Return the user name of this process, or the numeric user id if the user has no name, as in some containers."""
    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return str(os.getuid())
