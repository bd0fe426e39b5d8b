"""A folder that travels between sites: one signed JSON that lists every other file with its size and SHA-256.

The folder is flat. A file that is not listed is refused, unless an operating system has left it behind. What arrives is
copied, never linked or opened where it is: the copy is hashed while it is written, and only the copy is used.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import Field, StringConstraints

from hpcddm.errors import UserError, require
from hpcddm.errors.printing import ascii_only, printable, warn
from hpcddm.exchange import signing, strict_json
from hpcddm.exchange.ssh_keys import Malformed, PublicKey
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.junk import is_junk

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Names of files; they are the same on every file system."""
SUMS = "SHA256SUMS"
"""File for `sha256sum -c` at both ends; nothing here relies on it."""
MAX_FILES = 1000
"""Most entries of a folder that are looked at."""
BLOCK_BYTES = 4 << 20
"""Bytes that are copied and hashed at once."""
FileName = Annotated[str, StringConstraints(pattern=rf"^{NAME.pattern}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class ListedFile:
    """Size and SHA-256 of a file."""

    size: Annotated[int, Field(ge=0, lt=1 << 63)]
    sha256: Sha256


def require_size(files: Mapping[str, ListedFile], most: int) -> None:
    """Raise `ValueError` for files that have more than `most` bytes in all: hashing them would take hours."""
    size = sum(file.size for file in files.values())
    require(size <= most, f"files: have {size:,} bytes, more than {most:,}", ValueError)


D = TypeVar("D")
"""Dataclass of a signed JSON; one of its fields is `files: dict[FileName, ListedFile]`."""


def write_folder(folder: Path, name: str, document: D, paths: Mapping[str, Path], key: Path, namespace: str) -> D:
    """Write a folder that can travel.

    Args:
        folder: New folder; what is in it with these names is replaced.
        name: Name of the JSON, such as 'bundle.json'.
        document: Content of the JSON; its `files` are filled in.
        paths: The other files to copy, by their names in the folder.
        key: Private key that signs.
        namespace: Purpose of the signature.

    Returns:
        The document as it was written.

    Raises:
        UserError: The key cannot be used, a file cannot be read or written, or other sites would refuse the document.
            A folder that was new or empty is removed again.
    """
    _require_acceptable(name, document)
    try:
        is_new = not folder.exists() or not any(folder.iterdir())
        try:
            return _write(folder, name, document, paths, key, namespace)
        except BaseException:
            if is_new:
                shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: cannot be written ({error.strerror}); name another folder"
        ) from None


def _require_acceptable(name: str, document: Any) -> None:
    """Raise `UserError` for a document that `read_document` would not take from us."""
    try:
        strict_json.parse(_json(document).encode(), type(document))
    except ValueError as error:
        raise UserError(f"{name}: {printable(error, 400)}; other sites would refuse it, so change that") from None


def _json(document: Any) -> str:
    return f"{json.dumps(asdict(document), indent=1, allow_nan=False)}\n"


def _write(folder: Path, name: str, document: D, paths: Mapping[str, Path], key: Path, namespace: str) -> D:
    folder.mkdir(parents=True, exist_ok=True)
    listed = {}
    for own, path in paths.items():
        require(NAME.fullmatch(own) is not None, f"{own}: not a name that every file system has", ValueError)
        descriptor = checked_reads.open_regular(path)
        with open(descriptor, "rb") as source, atomic.replacing(folder / own) as staged:
            listed[own] = _copy(source.fileno(), staged, None)
    filled: D = replace(cast(Any, document), files=listed)
    _require_acceptable(name, filled)
    content = _json(filled)
    signature = signing.sign(content.encode(), key, namespace).decode()
    texts = {name: content, f"{name}.sig": signature}
    sums = [(own, file.sha256) for own, file in listed.items()]
    sums += [(own, hashlib.sha256(text.encode()).hexdigest()) for own, text in texts.items()]
    texts[SUMS] = "".join(f"{digest}  {own}\n" for own, digest in sorted(sums))
    # The signed file last: a folder with it is complete.
    for own in (SUMS, f"{name}.sig", name):
        atomic.write_text(folder / own, texts[own])
    return filled


def read_document(folder: Path, name: str, kind: type[D], namespace: str, max_bytes: int) -> tuple[D, PublicKey]:
    """Return the content of the signed JSON of a folder that somebody sent, and the key that signed it.

    Args:
        folder: The folder.
        name: Name of the JSON.
        kind: Dataclass of its content.
        namespace: Purpose of the signature.
        max_bytes: Largest size of the JSON.

    Raises:
        UserError: A file is missing or malformed, or the signature does not fit. The message names it.
    """
    content, armoured = read_signed(folder, name, max_bytes)
    return parse_signed(folder / name, content, armoured, kind, namespace)


def read_signed(folder: Path, name: str, max_bytes: int) -> tuple[bytes, bytes]:
    """Return the bytes of the signed JSON of a folder, and of its signature; errors as those of `read_document`."""
    try:
        content = checked_reads.read_bytes(folder / name, max_bytes, root=folder)
        return content, checked_reads.read_bytes(folder / f"{name}.sig", checked_reads.RECORD_BYTES, root=folder)
    except FileNotFoundError as error:
        raise UserError(f"{_missing(folder, error)} is missing; fetch the folder again") from None
    except Unreadable as error:
        raise _refusal(folder / name, error) from None


def parse_signed(path: Path, content: bytes, armoured: bytes, kind: type[D], namespace: str) -> tuple[D, PublicKey]:
    """Return the content of a signed JSON, and the key that signed it; errors as those of `read_document`."""
    try:
        key = signing.verify(content, armoured, namespace)
        return strict_json.parse(content, kind), key
    except (Malformed, ValueError) as error:
        raise _refusal(path, error) from None


def _refusal(path: Path, error: Exception) -> UserError:
    place, reason = getattr(error, "path", path), ascii_only(getattr(error, "reason", error), 400)
    return UserError(f"{printable(place)}: {reason}; refused, ask the sender for the folder again")


def receive(
    folder: Path, name: str, files: Mapping[str, ListedFile], target: Path | None, advance: Callable[[int], None]
) -> None:
    """Copy the listed files of a folder that somebody sent, and refuse a folder with any other file.

    Args:
        folder: The folder.
        name: Name of the signed JSON, which with its signature is not copied.
        files: The listed files by their names, from the signed JSON.
        target: Existing private folder; names in it are new. None to copy nothing.
        advance: Called with the bytes of every block that is copied; it may raise.

    Raises:
        UserError: A file is missing, not listed, not a regular file, or has another size or SHA-256.
    """
    try:
        with checked_reads.open_folder(folder) as opened:
            _check_names(folder, opened, {*files, name, f"{name}.sig", SUMS})
        for own, listed in files.items():
            _receive_file(folder, own, listed, target, advance)
    except FileNotFoundError as error:
        raise UserError(f"{_missing(folder, error)} is missing; complete the folder, then repeat this") from None
    except Unreadable as error:
        raise UserError(f"{printable(str(error.path))}: {error.reason}; refused") from None


def _missing(folder: Path, error: FileNotFoundError) -> Path:
    """Return what is missing: a file of the folder, or the folder."""
    return folder / Path(str(error.filename)).name if folder.is_dir() else folder


def _check_names(folder: Path, opened: int, expected: Collection[str]) -> None:
    """Raise `UserError` for an entry that is not listed, and for more entries than anybody lists.

    What an operating system has left behind is passed over, never opened, and said.
    """
    junk = []
    with os.scandir(opened) as entries:
        for number, entry in enumerate(entries):
            require(number < MAX_FILES, f"{folder}: more than {MAX_FILES} files; refused")
            if entry.name in expected:
                continue
            own = ascii_only(entry.name, 100)
            require(is_junk(entry.name), f"{folder}: {own} is not listed in what was signed; refused, remove it first")
            junk.append(own)
    if junk:
        warn(f"note: {folder}: passed over {', '.join(sorted(junk))}, which an operating system has left there")


def _receive_file(
    folder: Path, own: str, listed: ListedFile, target: Path | None, advance: Callable[[int], None]
) -> None:
    descriptor = checked_reads.open_regular(folder / own, folder)
    try:
        size = os.fstat(descriptor).st_size
        if size != listed.size:
            raise Unreadable(folder / own, f"has {size:,} bytes instead of {listed.size:,}")
        copied = _copy(descriptor, None if target is None else target / own, listed.size, advance)
    finally:
        os.close(descriptor)
    if copied != listed:
        reason = f"{copied.size:,} bytes with SHA-256 {copied.sha256}, others were signed"
        raise Unreadable(folder / own, reason)


def _copy(
    descriptor: int, path: Path | None, most: int | None, advance: Callable[[int], None] = lambda size: None
) -> ListedFile:
    """Copy an open file to a new one, if there is a path for it, and hash what is written.

    A file that grows beyond `most` bytes is cut there.
    """
    hashed, done = hashlib.sha256(), 0
    with nullcontext() if path is None else open(path, "xb") as target:
        while most is None or done <= most:
            block = os.read(descriptor, BLOCK_BYTES if most is None else min(BLOCK_BYTES, most + 1 - done))
            if not block:
                break
            hashed.update(block)
            if target is not None:
                target.write(block)
            done += len(block)
            advance(len(block))
        if target is not None:
            target.flush()
            os.fsync(target.fileno())
    return ListedFile(done, hashed.hexdigest())
