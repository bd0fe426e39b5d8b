"""Reading of files that others may have written: regular files alone, of bounded size, and JSON of bounded depth."""

import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.printing import printable

MIB = 1 << 20
RECORD_BYTES = MIB
"""Most bytes of a small record: of an attempt, a training state, a spec, a site, a piece of code."""
MANIFEST_BYTES = 16 * MIB
"""Most bytes of a manifest or of an experiment."""
RESULT_BYTES = 256 * MIB
"""Most bytes of a result: a catalog of many tars, curves, tables of concepts."""
DEPTH = 32
"""Most lists and mappings inside one another in a JSON file."""
INTEGER_LETTERS = 20
"""Most letters of a whole number; all of 64 bits have room, and each has a floating-point number beside it."""
NEXT = "fetch or make it again, or remove it"
KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Unreadable(UserError):
    """Error for a file that exists and cannot be used; `reason` is the part that says why."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, printable(reason)
        super().__init__(f"{printable(str(path), 4096)}: {self.reason}; {NEXT}")


@contextmanager
def opened_folder(path: Path, root: Path | None = None) -> Iterator[int]:
    """Open a folder and yield its descriptor, for calls with `dir_fd`.

    Args:
        path: The folder.
        root: A folder above it; no link below is followed. Without it, links are followed on the whole way.

    Raises:
        FileNotFoundError: Where there is nothing.
        Unreadable: Where a part of the way is a link or not a folder, or may not be opened.
    """
    parts = path.relative_to(root).parts if root else ()
    descriptor = _open(root or path, os.O_DIRECTORY)
    try:
        for number, part in enumerate(parts):
            place = Path(root or path, *parts[: number + 1])
            inner = _open(place, os.O_DIRECTORY | os.O_NOFOLLOW, part, descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(path: Path, root: Path | None = None, follows_links: bool = False) -> int:
    """Open a regular file for reading and return its descriptor; a pipe does not block.

    Args:
        path: The file.
        root: A folder above it; no link below is followed, that of a folder neither.
        follows_links: True to follow the file's own link, of a file that the user names.

    Raises:
        FileNotFoundError: Where there is nothing.
        Unreadable: For a link, a folder, a pipe, a socket or a device, or a file that may not be read.
    """
    flags = os.O_NONBLOCK | (0 if follows_links else os.O_NOFOLLOW)
    if root is None:
        descriptor = _open(path, flags)
    else:
        with opened_folder(path.parent, root) as folder:
            descriptor = _open(path, flags, path.name, folder)
    kind = _kind(os.fstat(descriptor))
    if kind:
        os.close(descriptor)
        raise Unreadable(path, f"is {kind} instead of a file")
    return descriptor


def _open(place: Path, flags: int, name: str | None = None, folder: int | None = None) -> int:
    """Open `place`, as `name` in an open folder where there is one."""
    try:
        return os.open(name or place, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        kind = None
        if number in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            try:
                kind = _kind(os.stat(name or place, dir_fd=folder, follow_symlinks=False))
            except NotADirectoryError:
                # A part of the way is a file, so that there is nothing at its end.
                raise FileNotFoundError(number, os.strerror(number), str(place)) from None
            except OSError:
                kind = None
        reason = f"is {kind}" if kind else "is not a folder" if number == errno.ENOTDIR else None
        raise Unreadable(place, reason or getattr(error, "strerror", None) or str(error)) from None


def _kind(status: os.stat_result) -> str | None:
    """Return the kind of what is no regular file, for the user; None for a regular file."""
    return next((name for is_kind, name in KINDS if is_kind(status.st_mode)), None)


def read_bytes(path: Path, most_bytes: int, root: Path | None = None, follows_links: bool = False) -> bytes:
    """Read a whole regular file; arguments and errors as those of `open_regular`.

    Args:
        path: The file.
        most_bytes: Bytes of which a longer file is refused, also one that grows meanwhile.
        root: See there.
        follows_links: See there.
    """
    with open(open_regular(path, root, follows_links), "rb") as file:
        try:
            content = file.read(min(most_bytes, os.fstat(file.fileno()).st_size) + 1)
            while 0 < len(content) <= most_bytes and (more := file.read(most_bytes + 1 - len(content))):
                content += more
        except OSError as error:
            raise Unreadable(path, error.strerror or str(error)) from None
    if len(content) > most_bytes:
        raise Unreadable(path, f"has more than {most_bytes:,} bytes")
    return content


def read_json(path: Path, most_bytes: int = RESULT_BYTES, root: Path | None = None) -> Any | None:
    """Read a JSON file that others may have written; None where there is none.

    Raises `Unreadable` for what is no regular file, is too long, or holds no JSON as `parse` takes it.
    """
    try:
        content = read_bytes(path, most_bytes, root)
    except FileNotFoundError:
        return None
    try:
        return parse(content)
    except ValueError as error:
        raise Unreadable(path, f"holds no usable JSON ({error})") from None


def parse(content: bytes | str) -> Any:
    """Parse JSON strictly: no key twice, no NaN, finite numbers of usual length, at most `DEPTH` levels.

    Raises `ValueError` with the reason, on one line.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        value = DECODER.decode(text)
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except RecursionError:
        raise ValueError(f"is deeper than {DEPTH} levels") from None
    except MemoryError:
        raise ValueError("takes more memory than there is") from None
    if not _is_flat(value):
        raise ValueError(f"is deeper than {DEPTH} levels")
    return value


def _is_flat(value: Any) -> bool:
    """Tell if a value has no more than `DEPTH` levels."""
    level = [value]
    for _ in range(DEPTH + 1):
        containers = [inner for inner in level if isinstance(inner, (dict, list))]
        if not containers:
            return True
        level = [child for inner in containers for child in (inner.values() if isinstance(inner, dict) else inner)]
    return False


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key '{printable(next(key for key in keys if keys.count(key) > 1))}' appears twice")
    return values


def _integer(text: str) -> int:
    if len(text) > INTEGER_LETTERS:
        raise ValueError(f"number {printable(text, 30)} is too long")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"number {printable(text, 30)} is not finite")
    return value


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float, parse_constant=_constant, strict=True
)
