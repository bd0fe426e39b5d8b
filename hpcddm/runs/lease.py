"""Lease of a folder by one process at a time: an advisory lock on a file that also names its holder."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.files import inside


class HeldElsewhere(UserError):
    """Error for a lease that another process holds; `holder` is what that process wrote into it."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


@contextmanager
def lease(path: Path, purpose: str, patience_seconds: float = 0) -> Iterator[None]:
    """Hold the file at `path` locked; the lock goes when this process ends, however it ends.

    Over NFSv3 it may outlive a node that died.

    Raises `HeldElsewhere`, naming the holder, when another process still has it after `patience_seconds`.
    """
    try:
        inside.make(path.parent)
        descriptor = inside.open_file(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise UserError(f"{path}: cannot be locked ({error.strerror})") from error
    deadline = time.time() + patience_seconds
    try:
        while not _try_lock(descriptor, path):
            if time.time() >= deadline:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
                message = f"{path.parent}: {holder} is at work here; wait for it or stop it first"
                raise HeldElsewhere(message, holder)
            time.sleep(0.5)
        os.ftruncate(descriptor, 0)
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
        raise UserError(
            f"{path}: this file system has no locks ({error.strerror}); on Lustre mount it with -o flock"
        ) from None
    return True
