"""Folders on disks of a node, which several users share, that only this user can write."""

import os
import stat
from contextlib import suppress
from pathlib import Path


def make(folder: Path) -> bool:
    """Make a folder that only this user can write; return False where another one has that name."""
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    return is_own(folder)


def is_own(folder: Path) -> bool:
    """Tell if a folder is this user's and nobody else can write it; links are not followed."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_mine and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
