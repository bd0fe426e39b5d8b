"""Atomic writing of files: write to another name, fsync, rename."""

import errno
import hashlib
import json
import math
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError, require
from hpcddm.files import guarded_writes
from hpcddm.files.checked_reads import Unreadable


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path whose file then replaces `path` in one step.

    If the body raises an exception, the temporary file is removed and `path` stays as it was. The temporary name is
    unique among all processes on all nodes: an NFS client may otherwise continue to write to a published file under a
    name that it knows.

    Args:
        path: File to replace.
        durable: True to wait until the disk has the file.

    Yields:
        Path to write to, in the same folder.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "state.txt")
        ...     with replacing(file) as staged:
        ...         _ = staged.write_text("step 100")
        ...     file.read_text()
        'step 100'
    """
    with guarded_writes.open_folder(path.parent) as folder:
        # The folder by its descriptor: another one, or a link, may be put in its place meanwhile.
        staged = Path(f"/proc/self/fd/{folder}", f".{path.name}.{unique_suffix()}")
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


def unique_suffix() -> str:
    """Return a part of a file name that is unique among all nodes, unlike process ids."""
    return uuid.uuid4().hex[:16]


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Replace a file by a text in one step; create its folder if needed.

    Args:
        path: File to replace.
        text: New content.
        durable: True to wait until the disk has the file.

    Raises:
        UserError: The disk is full or not writable; the message has the path and the number of bytes.
    """
    try:
        if not path.parent.is_dir():
            guarded_writes.make_folder(path.parent)
        with replacing(path, durable) as staged:
            staged.write_text(text)
    except OSError as error:
        raise UserError(f"{path}: cannot write {len(text)} bytes: {error.strerror}") from error


def write_json(path: Path, value: Any, durable: bool = True) -> None:
    """Replace a file by indented JSON in one step; arguments and errors are those of `write_text`.

    Raises:
        UserError: Also for a number that is not finite, which JSON cannot hold; the message has its key.
    """
    places: list[str] = []
    finite = finite_json(value, places)
    if places:
        raise UserError(f"{path}: cannot write {places[0]}, which is not finite; look at the samples and trainings")
    write_text(path, json.dumps(finite, indent=1) + "\n", durable)


def finite_json(value: Any, places: list[str], key: str = "") -> Any:
    """Return a value for JSON with None for each number that is not finite.

    Args:
        value: Value to write.
        places: List to which the keys of these numbers are added, such as 'arms.top-1.fd'.
        key: Key of the value.
    """
    if isinstance(value, dict):
        return {name: finite_json(item, places, f"{key}.{name}".lstrip(".")) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item, places, f"{key}.{number}") for number, item in enumerate(value)]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    places.append(key)
    return None


def append_line(path: Path, line: str) -> None:
    """Append one line to a file and wait for the disk; lines of concurrent writers do not mix.

    Args:
        path: File; it is created if it does not exist.
        line: Line without the newline.

    Raises:
        UserError: The disk is full or not writable; the message has the path.
    """
    try:
        descriptor = guarded_writes.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
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


def nearest_existing(folder: Path) -> Path:
    """Return a folder as an absolute path, or the nearest parent of it that exists."""
    place = folder.absolute()
    return next(path for path in (place, *place.parents) if path.exists() or path == path.parent)


def free_bytes(folder: Path) -> int:
    """Return the number of bytes that this user may still write below `folder`."""
    statistics = os.statvfs(folder)
    return statistics.f_bavail * statistics.f_frsize


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that is not there yet, with permissions, and wait for the disk; raises `OSError`."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Wait until the content of a file, or the list of names in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    Raises:
        Unreadable: The path is a pipe, a device or a folder.
        OSError: The file cannot be opened.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable(path, "is not a file")
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON in hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def require_submitted(path: Path, submitted: str | None, content: str) -> None:
    """Check that a file has not changed since the run was submitted.

    Args:
        path: File, for the error.
        submitted: Hash that the run has stored; None to skip the check.
        content: Hash of the file as it is now.

    Raises:
        UserError: The hashes differ.
    """
    require(
        submitted in (None, content), f"{path}: has changed since the run was submitted; put it back, or submit again"
    )
