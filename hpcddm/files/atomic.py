"""Atomic writing of files: write aside, fsync, rename."""

import errno
import hashlib
import json
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError, require
from hpcddm.files import inside
from hpcddm.files.reading import Unreadable


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a path to write a file to, which then replaces the one at `path` in one step.

    The name was never used before, by any process on any node: an NFS client may go on to write under a name that it
    knows into what has been published under another one since. `durable` also waits for the disk. When the body
    raises, nothing of it is left and `path` stays as it was.
    """
    with inside.opened(path.parent) as folder:
        # The folder by its descriptor: another one, or a link, may be put in its place meanwhile.
        staged = Path(f"/proc/self/fd/{folder}", f".{path.name}.{unused()}")
        try:
            yield staged
            if durable:
                sync(staged)
            os.replace(staged, staged.with_name(path.name))
        except BaseException:
            with suppress(OSError):
                staged.unlink()
            raise
        if durable:
            sync(staged.parent)


def unused() -> str:
    """Return a part of a file name that is unique among all nodes, which process ids are not."""
    return uuid.uuid4().hex[:16]


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Replace `path` by `text` in one step; `durable` also waits for the disk.

    Raises `UserError` with the path and the number of bytes when the disk is full or not writable.
    """
    try:
        if not path.parent.is_dir():
            inside.make(path.parent)
        with replacing(path, durable) as staged:
            staged.write_text(text)
    except OSError as error:
        raise UserError(f"{path}: cannot write {len(text)} bytes: {error.strerror}") from error


def write_json(path: Path, value: Any, durable: bool = True) -> None:
    """Replace `path` by indented JSON in one step."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n", durable)


def append_line(path: Path, line: str) -> None:
    """Append one line and wait for the disk; concurrent writers do not tear each other's lines.

    Raises `UserError` with the path when the disk is full or not writable.
    """
    try:
        descriptor = inside.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            # A writer that died may have left half a line; the new one must not become its other half. One that is
            # just writing looks the same, and then a blank line follows, which readers pass over.
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            content = ("\n" * torn + line + "\n").encode()
            if os.write(descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UserError(f"{path}: cannot append {len(line)} bytes: {error.strerror}") from error


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write below `folder`."""
    statistics = os.statvfs(folder)
    return statistics.f_bavail * statistics.f_frsize


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal; raises `Unreadable` for a pipe or a device."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable(path, "is not a file")
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def require_submitted(path: Path, submitted: str | None, content: str) -> None:
    """Raise `UserError` for a file whose hash `content` is another one than the run has stored, where it has one."""
    require(
        submitted in (None, content), f"{path}: has changed since the run was submitted; put it back, or submit again"
    )
