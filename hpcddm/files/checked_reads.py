"""Reading of files that others may have written: only regular files, of bounded size, and JSON of bounded depth."""

import errno
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from hpcddm.errors import UserError, require
from hpcddm.errors.printing import printable

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

T = TypeVar("T")
MIB = 1 << 20
RECORD_BYTES = MIB
"""Largest size of a small record: an attempt, a site, a code snapshot."""
MANIFEST_BYTES = 16 * MIB
"""Largest size of a manifest or an experiment."""
RESULT_BYTES = 256 * MIB
"""Largest size of a result: a catalog of many tars, a training state with its curve, a table of concepts, a journal."""
DEPTH = 32
"""Maximum depth of nested lists and mappings in a JSON file."""
TOO_DEEP = f"is deeper than {DEPTH} levels"
MAX_NUMBER = 1 << 128
"""Largest whole number: a training may need 1e25 FLOPs, and floats represent all smaller ones."""
MAX_COUNT = 1 << 63
"""Upper bound of counts: numpy can store every smaller one."""
MAX_TIMESTAMP = 1e11
"""Seconds since the epoch in the year 5138; calendars accept all earlier times."""
STRICT: Any = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
"""Settings of pydantic for a record: nothing is converted, and unknown keys are refused."""
ALLOW_EXTRA_KEYS = STRICT | {"extra": "ignore"}
"""The same for a record that may have more keys, as `__pydantic_config__` of a class."""
REPAIR_ADVICE = "fetch or make it again, or remove it"
KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Unreadable(UserError):
    """Error for a file that exists but cannot be used; `reason` is the cause without the path."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, printable(reason)
        super().__init__(f"{printable(str(path), 4096)}: {self.reason}; {REPAIR_ADVICE}")


@contextmanager
def open_folder(path: Path, root: Path | None = None) -> Iterator[int]:
    """Open a folder and yield its descriptor for calls with `dir_fd`.

    Args:
        path: The folder.
        root: A folder above it; links below `root` are not followed. Without it, all links are followed.

    Raises:
        FileNotFoundError: The folder does not exist.
        Unreadable: A part of the path is a link, not a folder, or not accessible.
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
        root: A folder above it; links below `root` are not followed.
        follows_links: True to follow a link at `path` itself, for files that the user names.

    Raises:
        FileNotFoundError: The file does not exist.
        Unreadable: The path is not a regular file, or the file is not readable.
    """
    flags = os.O_NONBLOCK | (0 if follows_links else os.O_NOFOLLOW)
    if root is None:
        descriptor = _open(path, flags)
    else:
        with open_folder(path.parent, root) as folder:
            descriptor = _open(path, flags, path.name, folder)
    kind = kind_of(os.fstat(descriptor))
    if kind:
        os.close(descriptor)
        raise Unreadable(path, f"is {kind} instead of a file")
    return descriptor


def _open(place: Path, flags: int, name: str | None = None, folder: int | None = None) -> int:
    """Open `place`, or `name` in the open folder `folder` if it is given."""
    try:
        return os.open(name or place, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        kind = None
        if number in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            try:
                kind = kind_of(os.stat(name or place, dir_fd=folder, follow_symlinks=False))
            except NotADirectoryError:
                # A component of the path is a file, so the path does not exist.
                raise FileNotFoundError(number, os.strerror(number), str(place)) from None
            except OSError:
                kind = None
        reason = f"is {kind}" if kind else "is not a folder" if number == errno.ENOTDIR else None
        raise Unreadable(place, reason or getattr(error, "strerror", None) or str(error)) from None


def kind_of(status: os.stat_result) -> str | None:
    """Return the kind of a special file for an error; None for a regular file."""
    if stat.S_ISREG(status.st_mode):
        return None
    return next((name for is_kind, name in KINDS if is_kind(status.st_mode)), "of an unknown kind")


def read_bytes(path: Path, max_bytes: int, root: Path | None = None, follows_links: bool = False) -> bytes:
    """Read a regular file of at most `max_bytes` bytes; larger ones raise `Unreadable`, also ones that grow meanwhile.

    The other arguments and errors are those of `open_regular`.
    """
    descriptor = open_regular(path, root, follows_links)
    try:
        content = os.read(descriptor, min(max_bytes, os.fstat(descriptor).st_size) + 1)
        # A file that grows, or one of /proc, has more than its size says; one call gives no more than 2 GiB.
        while 0 < len(content) <= max_bytes and (more := os.read(descriptor, max_bytes + 1 - len(content))):
            content += more
    except OSError as error:
        raise Unreadable(path, error.strerror or str(error)) from None
    finally:
        os.close(descriptor)
    if len(content) > max_bytes:
        raise Unreadable(path, f"has more than {max_bytes:,} bytes")
    return content


def read_json(path: Path, kind: Any = Any, max_bytes: int = RESULT_BYTES) -> Any:
    """Read a JSON file that others may have written.

    Args:
        path: The file; links are refused.
        kind: Type of the content; a dataclass is instantiated.
        max_bytes: Largest size in bytes.

    Returns:
        The content; None if the file does not exist.

    Raises:
        Unreadable: The file is not a regular one, is too long, or `parse_json` refuses its content.
    """
    return _read(path, max_bytes, partial(parse_json, kind=kind))


def read_required_json(path: Path, kind: Any = dict[str, Any], follows_links: bool = False) -> Any:
    """Read a JSON file as `read_json` does, by default a mapping; raise `Unreadable` if it does not exist."""
    return _read(path, RESULT_BYTES, partial(parse_json, kind=kind), follows_links=follows_links, required=True)


def read_mapping(path: Path, shape: Any = dict[str, Any], max_bytes: int = RECORD_BYTES) -> dict[str, Any] | None:
    """Read a JSON mapping with the keys and types of the dataclass `shape`; errors and None are as for `read_json`."""
    return _read(path, max_bytes, lambda content: parse_mapping(content, shape))


def read_required_mapping(path: Path, shape: Any) -> dict[str, Any]:
    """Read a mapping as `read_mapping` does; raise `Unreadable` if the file does not exist."""
    values: dict[str, Any] = _read(path, RESULT_BYTES, lambda content: parse_mapping(content, shape), required=True)
    return values


def _read(
    path: Path, max_bytes: int, parsed: Callable[[bytes], Any], follows_links: bool = False, required: bool = False
) -> Any:
    try:
        content = read_bytes(path, max_bytes, follows_links=follows_links)
    except FileNotFoundError:
        if required:
            raise Unreadable(path, "is missing") from None
        return None
    try:
        return parsed(content)
    except ValueError as error:
        raise Unreadable(path, f"holds no usable JSON ({error})") from None


def usable(read: Callable[..., T], *arguments: Any) -> T | None:
    """Return what a function reads; None for a file that is damaged."""
    try:
        return read(*arguments)
    except Unreadable:
        return None


def parse_json(content: bytes, kind: Any = Any) -> Any:
    """Parse JSON strictly: unique keys, finite numbers of moderate size, at most `DEPTH` levels.

    Args:
        content: JSON text in UTF-8.
        kind: Type of the value; a dataclass is instantiated.

    Raises:
        ValueError: The content is not valid.

    Examples:
        >>> parse_json(b'{"step": 100}', dict[str, int])
        {'step': 100}
    """
    value = _parsed(content)
    return value if kind is Any else _typed(content, value, kind)


def parse_mapping(content: bytes, shape: Any) -> dict[str, Any]:
    """Parse a JSON mapping with the keys and types of a dataclass, as `parse_json` does, and return the mapping."""
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
    """Convert JSON content, parsed as `value`, to a type; raise `ValueError` naming the first key that does not fit."""
    from pydantic import ValidationError

    try:
        made = _validator(kind).validate_json(content)
    except ValidationError as error:
        # Names of files may hold bytes that are not UTF-8, as lone surrogates, which pydantic does not take.
        plain = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        # Listed once: there may be one for every value.
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid" and plain != content:
            _typed(plain, None, kind)
            return _built(value, kind)
        raise ValueError(_fault(first)) from None
    if made is None:
        raise ValueError("is null")
    return made


def _fault(first: "ErrorDetails") -> str:
    place = printable(".".join(map(str, first["loc"])), 100)
    message = printable(first["msg"].removeprefix("Value error, "))
    return f"{place}: {message}" if place else message


def _built(value: Any, kind: Any) -> Any:
    """Instantiate the dataclasses of a type from a value that fits except for lone surrogates."""
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
    """Build the validator of a type once; pydantic is imported late so that the login node starts fast."""
    from pydantic import TypeAdapter

    # A dataclass alone would not take these settings from here; null is refused by the caller.
    return TypeAdapter(kind | None, config=STRICT)


def _require_usable(value: Any) -> None:
    """Raise `ValueError` for a value that has too many levels or a number that is too large."""
    level = [value]
    for number in range(DEPTH + 1):
        inner: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                inner.extend(item.values())
            elif kind is list:
                inner.extend(item)
            elif (kind is int and abs(item) > MAX_NUMBER) or (kind is float and not isfinite(item)):
                raise ValueError("holds a number that is too large")
            if number == DEPTH and kind in (dict, list):
                raise ValueError(TOO_DEEP)
        level = inner


def require_times(*seconds: float) -> None:
    """Raise `ValueError` for negative seconds since the epoch, or times after the year 5138."""
    require(all(0 <= time < MAX_TIMESTAMP for time in seconds), "holds a time that cannot be", ValueError)


def require_counts(*numbers: float) -> None:
    """Raise `ValueError` for a number that is negative or not below `MAX_COUNT`."""
    require(min(numbers) >= 0, "holds a number below zero", ValueError)
    require(max(numbers) < MAX_COUNT, "holds a number that is too large", ValueError)


def require_inside(name: str) -> None:
    """Raise `ValueError` for a name that is not a relative path below a folder."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError("names a file outside of its folder")


class OpenRecord:
    """Base class of the types of records that may have more keys than the type lists."""

    __pydantic_config__: ClassVar = ALLOW_EXTRA_KEYS


@dataclass(frozen=True)
class Rule:
    """Rule for the values of an annotated type in a record; `check` raises `ValueError` for any other value."""

    check: Callable[[Any], None]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: Any) -> Any:
        self.check(value)
        return value


Count = Annotated[int, Rule(require_counts)]
Quantity = Annotated[float, Rule(require_counts)]
Timestamp = Annotated[float, Rule(require_times)]
"""Seconds since the epoch."""
InnerPath = Annotated[str, Rule(require_inside)]
"""Path of a file below a folder, relative to it."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"key '{printable(key, 100)}' appears twice")
    return values


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant)
