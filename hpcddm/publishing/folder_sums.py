"""SHA256SUMS of a published folder, its signature, and the verification of both.

`sha256sum -c SHA256SUMS` and `ssh-keygen -Y verify` give the same answers without this package.
"""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from hpcddm.errors import UserError, require
from hpcddm.errors.printing import printable
from hpcddm.exchange import signing
from hpcddm.exchange.signed_folder import BLOCK_BYTES, SUMS
from hpcddm.exchange.signing import ENSEMBLE
from hpcddm.exchange.ssh_keys import Malformed, PublicKey
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.junk import is_junk

SIGNATURE = f"{SUMS}.sig"
LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._/-]{0,400})")
MAX_BYTES = 4 << 20
"""Largest size of SHA256SUMS."""
MAX_DEPTH = 16
"""Most folders in each other."""
IGNORED = (".git", ".gitattributes", ".cache", ".huggingface")
"""Entries that a hub's own programs leave in a folder that they have fetched."""


def list_files(folder: Path, root: Path | None = None) -> list[str]:
    """List the files below a folder by their paths, sorted.

    Raises:
        UserError: An entry is neither a file nor a folder, such as a link, or is in too many folders.
    """
    root, found = root or folder, list[str]()
    if len(folder.relative_to(root).parts) > MAX_DEPTH:
        raise UserError(f"{printable(root)}: has more than {MAX_DEPTH} folders in each other; refused")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in IGNORED or is_junk(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                found += list_files(Path(entry.path), root)
            elif entry.is_file(follow_symlinks=False):
                found.append(str(Path(entry.path).relative_to(root)))
            else:
                raise UserError(f"{printable(entry.path)}: is neither a file nor a folder; refused, remove it first")
    return sorted(found)


def write_sums(folder: Path, digests: dict[str, str], key: Path | None) -> None:
    """Write SHA256SUMS of all files of a folder, and sign it.

    Args:
        folder: The folder.
        digests: Known digests of files, by path; those of the others are computed.
        key: Private key that signs; None for no signature.
    """
    lines = [f"{digests.get(name) or atomic.sha256(folder / name)}  {name}\n" for name in list_files(folder)]
    atomic.write_text(folder / SUMS, "".join(lines))
    if key is not None:
        atomic.write_text(folder / SIGNATURE, signing.sign("".join(lines).encode(), key, ENSEMBLE).decode())


def verify_folder(folder: Path, advance: Callable[[int], object]) -> PublicKey:
    """Check the bytes of all files of a published folder, and its signature.

    Args:
        folder: The folder.
        advance: Called with the bytes of every block that is read.

    Returns:
        The key that signed it.

    Raises:
        UserError: A file is missing, unlisted or has other bytes, or the folder is not signed. The message names it.
    """
    try:
        content = checked_reads.read_bytes(folder / SUMS, MAX_BYTES, root=folder)
        sums = _parse(folder / SUMS, content)
        present = [name for name in list_files(folder) if name not in (SUMS, SIGNATURE)]
        for name in present:
            require(name in sums, f"{folder}: {printable(name)} is not listed in {SUMS}; refused, remove it first")
        for name, digest in sums.items():
            require(name in present, f"{folder / name}: is missing; fetch the folder again")
            if _digest(folder, name, advance) != digest:
                raise UserError(f"{folder / name}: its bytes are not those of {SUMS}; fetch the folder again")
        armoured = checked_reads.read_bytes(folder / SIGNATURE, checked_reads.RECORD_BYTES, root=folder)
        return signing.verify(content, armoured, ENSEMBLE)
    except FileNotFoundError as error:
        name = Path(str(error.filename)).name
        whole = "every file is as it was written, but nobody vouches for it: " if name == SIGNATURE else ""
        raise UserError(f"{whole}{folder / name} is missing; ask for the folder again") from None
    except (Malformed, Unreadable) as error:
        raise UserError(f"{folder / SUMS}: {getattr(error, 'reason', error)}; fetch the folder again") from None


def _parse(path: Path, content: bytes) -> dict[str, str]:
    """Return the digests by path; raise `UserError` for a line that is not the sum of one file of the folder."""
    sums: dict[str, str] = {}
    for line in content.decode("ascii", "replace").splitlines():
        match = LINE.fullmatch(line)
        if match is None or ".." in match[2].split("/") or match[2] in sums:
            raise UserError(f"{path}: {printable(line, 80)}: is not the sum of one file; refused")
        sums[match[2]] = match[1]
    return sums


def _digest(folder: Path, name: str, advance: Callable[[int], object]) -> str:
    hashed = hashlib.sha256()
    with open(checked_reads.open_regular(folder / name, folder), "rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            hashed.update(block)
            advance(len(block))
    return hashed.hexdigest()
