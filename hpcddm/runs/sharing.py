"""Runs that several people share: in a setgid, group-writable folder everything that is written is group-writable."""

import os
import pwd
import stat
from pathlib import Path

GROUP_BITS = 0o070


def follow(folder: Path) -> None:
    """Let this process and its children write for the group where a folder, or the parent that will hold it, is shared.

    The permissions of others stay as the user has them.
    """
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    mode = place.stat().st_mode
    if mode & stat.S_ISGID and mode & stat.S_IWGRP:
        before = os.umask(0o077)
        os.umask(before & ~GROUP_BITS)


def user() -> str:
    """Return the name of the user of this process, or the user's number where there is no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
