"""Files that exist whole or not at all: write aside, fsync, rename."""

import errno
import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Replace `path` by `text` in one step; `durable` also waits for the disk.

    Raises `UserError` with the path and the number of bytes when the disk is full or not writable.
    """
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(staged, "w") as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(staged, path)
    except OSError as error:
        with suppress(OSError):
            staged.unlink()
        raise UserError(f"{path}: cannot write {len(text)} bytes: {error.strerror}") from error
    if durable:
        sync(path.parent)


def write_json(path: Path, value: Any, durable: bool = True) -> None:
    """Replace `path` by indented JSON in one step."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n", durable)


def read_json(path: Path) -> Any | None:
    """The content of a JSON file, or None when it is missing or torn."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def append_line(path: Path, line: str) -> None:
    """Append one line and wait for the disk; concurrent writers do not tear each other's lines.

    Raises `UserError` with the path when the disk is full or not writable.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
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
    """Bytes that this user may still write below `folder`."""
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
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
