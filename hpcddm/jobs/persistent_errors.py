"""Errors that another attempt would meet again: which ones end a unit at once, and a probe for them."""

import errno
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.files import atomic, guarded_writes

PERSISTENT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG)
"""Errors of a file system that persist in another attempt."""
FULL_DISK = re.compile("No space left on device|Disk quota exceeded|Read-only file system|StorageFull")
"""Pattern of the persistent errors of a disk in the messages of libraries, which do not raise `OSError`."""
PROBE_BYTES = 65536
NODE_DISK_BYTES = 1 << 24
"""Free bytes below which a node's own disk counts as full."""


def is_final_error(error: BaseException, root: Path) -> bool:
    """Return True if another attempt would fail in the same way, until the user acts.

    These are the errors that are written for users, unless a temporary error of a file caused them, and errors of the
    run's files that persist, in whichever rank, stage or library. Another node may have room on its own disk.

    Args:
        error: The error.
        root: Folder of the run.
    """
    chain: list[BaseException] = [error]
    while chain[-1].__cause__:
        chain.append(chain[-1].__cause__)
    of_files = [each for each in chain if isinstance(each, OSError)]
    persists = any(each.errno in PERSISTENT_ERRORS for each in of_files)
    if isinstance(error, UserError):
        return persists or not of_files
    if places := [str(each.filename) for each in of_files if each.filename]:
        return persists and any(Path(place).is_relative_to(root) for place in places)
    is_full = persists or FULL_DISK.search(str(error)) is not None
    return is_full and shutil.disk_usage(tempfile.gettempdir()).free > NODE_DISK_BYTES


def write_error(folder: Path) -> OSError | UserError | None:
    """Return the error on writing a small file into a folder, or into the one where it belongs; None for none."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    probe = folder / f".probe.{atomic.unique_suffix()}"
    try:
        with open(guarded_writes.open_file(probe, os.O_WRONLY | os.O_CREAT), "wb") as file:
            # Random bytes, because a file system with compression would have room for zeros.
            file.write(os.urandom(PROBE_BYTES))
    except (OSError, UserError) as error:
        return error
    finally:
        with suppress(OSError, UserError):
            guarded_writes.remove(probe)
    return None
