"""Lease of a folder by one process at a time: an advisory lock on a file that also names its holder."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.files import guarded_writes

PATIENCE_SECONDS = 60
"""Seconds that one command waits for another one that is at work in the same run."""


class HeldElsewhere(UserError):
    """Error for a lease that another process holds; `holder` is the text with which that process describes itself."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


@contextmanager
def lease(path: Path, purpose: str, patience_seconds: float = 0) -> Iterator[None]:
    """Lock a file for the duration of a `with` block.

    The kernel releases the lock when this process ends for any reason. Over NFSv3 the lock may outlive a node that
    crashed.

    Args:
        path: The file to lock, which is created if needed.
        purpose: Description of this process for the error messages of others.
        patience_seconds: Seconds to wait for a lock that another process holds.

    Raises:
        HeldElsewhere: If another process still holds the lock after `patience_seconds`.
        UserError: If the file cannot be created or the file system has no locks.
    """
    try:
        guarded_writes.make_folder(path.parent)
        descriptor = guarded_writes.open_file(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise UserError(f"{path}: cannot be locked ({error.strerror})") from error
    deadline = time.time() + patience_seconds
    try:
        while not _try_lock(descriptor, path):
            if time.time() >= deadline:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
                raise HeldElsewhere(f"{path.parent}: {holder} is at work here; wait for it or stop it first", holder)
            time.sleep(0.5)
        os.ftruncate(descriptor, 0)
        with suppress(OSError):
            # A full disk takes no text, and whoever makes room on it needs the lock.
            os.pwrite(descriptor, f"{purpose} (process {os.getpid()} on {socket.gethostname()})\n".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        reason = f"this file system has no locks ({error.strerror}); on Lustre mount it with -o flock"
        raise UserError(f"{path}: {reason}") from None
    return True
