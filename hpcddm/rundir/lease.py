"""One at a time: an advisory lock on a file that also says who holds it."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcddm.errors import UserError


class HeldElsewhere(UserError):
    """Somebody else holds the lease."""


@contextmanager
def lease(path: Path, purpose: str) -> Iterator[None]:
    """Hold the file at `path` locked; the lock goes when this process ends, however it ends.

    Raises `HeldElsewhere`, naming the holder, when another process has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
            raise HeldElsewhere(f"{path.parent}: {holder} is at work here; wait for it or stop it first") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{purpose} (process {os.getpid()} on {socket.gethostname()})\n".encode())
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
