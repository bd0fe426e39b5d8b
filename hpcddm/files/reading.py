"""Reading of files that others may have written: regular files alone, of bounded size, and JSON of bounded depth."""

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from hpcddm.errors import UserError
from hpcddm.errors.printing import printable

if TYPE_CHECKING:
    from pydantic import ValidationError

MIB = 1 << 20
RECORD_BYTES = MIB
"""Most bytes of a small record: of an attempt, a site, a snapshot of the code."""
MANIFEST_BYTES = 16 * MIB
"""Most bytes of a manifest or of an experiment."""
RESULT_BYTES = 256 * MIB
"""Most bytes of a result: a catalog of many tars, a training state with its curve, tables of concepts, a journal."""
DEPTH = 32
"""Most lists and mappings inside one another in a JSON file."""
TOO_DEEP = f"is deeper than {DEPTH} levels"
LARGEST = 1 << 128
"""Largest whole number: a training may need 1e25 FLOPs, and arithmetic with floating-point numbers takes all."""
LARGEST_COUNT = 1 << 63
"""Least number that is no count: numpy takes all below."""
LAST_SECOND = 1e11
"""Seconds since the epoch in the year 5138: calendars take all times before."""
STRICT: Any = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
"""Settings of pydantic for a record: nothing is converted, and unknown keys are refused."""
OPEN = STRICT | {"extra": "ignore"}
"""The same for a record that may have more keys; as `__pydantic_config__` of a class."""
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
    if stat.S_ISREG(status.st_mode):
        return None
    return next((name for is_kind, name in KINDS if is_kind(status.st_mode)), "of an unknown kind")


def read_bytes(path: Path, most_bytes: int, root: Path | None = None, follows_links: bool = False) -> bytes:
    """Read a whole regular file; arguments and errors as those of `open_regular`.

    Args:
        path: The file.
        most_bytes: Bytes of which a longer file is refused, also one that grows meanwhile.
        root: See there.
        follows_links: See there.
    """
    descriptor = open_regular(path, root, follows_links)
    try:
        content = os.read(descriptor, min(most_bytes, os.fstat(descriptor).st_size) + 1)
        # A file that grows, or one of /proc, has more than its size says; one call gives no more than 2 GiB.
        while 0 < len(content) <= most_bytes and (more := os.read(descriptor, most_bytes + 1 - len(content))):
            content += more
    except OSError as error:
        raise Unreadable(path, error.strerror or str(error)) from None
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        raise Unreadable(path, f"has more than {most_bytes:,} bytes")
    return content


def read_json(path: Path, kind: Any = Any, most_bytes: int = RESULT_BYTES, root: Path | None = None) -> Any:
    """Read a JSON file that others may have written; None where there is none.

    Args:
        path: The file; a link to one is refused.
        kind: Type of the content; of a dataclass, one is made.
        most_bytes: Most bytes that it may have.
        root: As that of `open_regular`.

    Raises:
        Unreadable: For what is no regular file, is too long, holds no JSON as `parse` takes it, or another content.
    """
    return _read(path, most_bytes, lambda content: parse(content, kind), root)


def need_json(path: Path, kind: Any = dict[str, Any], follows_links: bool = False) -> Any:
    """Read a result that must be there, by default a mapping, as `read_json` does; raises `Unreadable` without it.

    follows_links: True for a file that the user names.
    """
    return _read(path, RESULT_BYTES, lambda content: parse(content, kind), follows_links=follows_links, needed=True)


def read_mapping(path: Path, shape: Any = dict[str, Any], most_bytes: int = RECORD_BYTES) -> dict[str, Any] | None:
    """Read a JSON mapping with the keys and the types of a dataclass, as a mapping; None where there is none.

    Raises `Unreadable` as `read_json` does.
    """
    return _read(path, most_bytes, lambda content: parse_mapping(content, shape))


def need_mapping(path: Path, shape: Any) -> dict[str, Any]:
    """Read a result that must be there, as `read_mapping` does; raises `Unreadable` without it."""
    values: dict[str, Any] = _read(path, RESULT_BYTES, lambda content: parse_mapping(content, shape), needed=True)
    return values


def _read(
    path: Path,
    most_bytes: int,
    parsed: Callable[[bytes], Any],
    root: Path | None = None,
    follows_links: bool = False,
    needed: bool = False,
) -> Any:
    try:
        content = read_bytes(path, most_bytes, root, follows_links)
    except FileNotFoundError:
        if needed:
            raise Unreadable(path, "is missing") from None
        return None
    try:
        return parsed(content)
    except ValueError as error:
        raise Unreadable(path, f"holds no usable JSON ({error})") from None


def parse(content: bytes, kind: Any = Any) -> Any:
    """Parse JSON strictly: no key twice, no NaN, finite numbers of usual size, at most `DEPTH` levels.

    kind: the type that the value must have; of a dataclass, it is made. Raises `ValueError` with the reason.
    """
    value = _parsed(content)
    return value if kind is Any else _typed(content, value, kind)


def parse_mapping(content: bytes, shape: Any) -> dict[str, Any]:
    """Parse a JSON mapping as `parse` does, with the keys and the types of a dataclass; returns it as a mapping."""
    value: dict[str, Any] = _parsed(content)
    _typed(content, value, shape)
    return value


def _parsed(content: bytes) -> Any:
    try:
        value = DECODER.decode(content.decode())
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except MemoryError:
        raise ValueError("takes more memory than there is") from None
    _require_usable(value)
    return value


def _typed(content: bytes, value: Any, kind: Any) -> Any:
    """Make a value of some type from JSON; raises `ValueError` naming key and fault of the first that does not fit.

    value: what the JSON holds.
    """
    from pydantic import ValidationError

    try:
        made = _validator(kind).validate_json(content)
    except ValidationError as error:
        # Names of files may hold bytes that are not UTF-8, as lone surrogates, which pydantic does not take.
        plain = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        if error.errors(include_url=False)[0]["type"] == "json_invalid" and plain != content:
            _typed(plain, None, kind)
            return _built(value, kind)
        raise ValueError(_first_fault(error)) from None
    if made is None:
        raise ValueError("is null")
    return made


def _first_fault(error: "ValidationError") -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = printable(".".join(map(str, first["loc"])), 100)
    message = printable(first["msg"].removeprefix("Value error, "))
    return f"{place}: {message}" if place else message


def _built(value: Any, kind: Any) -> Any:
    """Make the dataclasses of a type from a value that fits it but for its lone surrogates."""
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{key: _built(inner, hints[key]) for key, inner in value.items() if key in hints})
    inner = next(filter(is_dataclass, get_args(kind)), None)
    if inner is None or value is None:
        return value
    if isinstance(value, list):
        return [_built(entry, inner) for entry in value]
    if get_origin(kind) is dict:
        return {key: _built(entry, inner) for key, entry in value.items()}
    return _built(value, inner)


@cache
def _validator(kind: Any) -> Any:
    """Build the validator of a type, once; pydantic waits until it is needed, for the login node's sake."""
    from pydantic import TypeAdapter

    # A dataclass alone would not take these settings from here; null is refused by the caller.
    return TypeAdapter(kind | None, config=STRICT)


def _require_usable(value: Any) -> None:
    """Raise `ValueError` for a value of too many levels, or with a number that no arithmetic takes."""
    level = [value]
    for number in range(DEPTH + 1):
        inner: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                inner.extend(item.values())
            elif kind is list:
                inner.extend(item)
            elif (kind is int and abs(item) > LARGEST) or (kind is float and not isfinite(item)):
                raise ValueError("holds a number that is too large")
            if number == DEPTH and kind in (dict, list):
                raise ValueError(TOO_DEEP)
        level = inner


def require_times(*seconds: float) -> None:
    """Raise `ValueError` for seconds since the epoch of which no clock can be."""
    if not all(0 <= time < LAST_SECOND for time in seconds):
        raise ValueError("holds a time that cannot be")


def require_counts(*numbers: float) -> None:
    """Raise `ValueError` for a number below zero, or larger than anything that is counted."""
    if min(numbers) < 0:
        raise ValueError("holds a number below zero")
    if max(numbers) >= LARGEST_COUNT:
        raise ValueError("holds a number that is too large")


def require_inside(name: str) -> None:
    """Raise `ValueError` for a name that is no relative path to a file below a folder."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError("names a file outside of its folder")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key '{printable(next(key for key in values if keys.count(key) > 1), 100)}' appears twice")
    return values


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant)
