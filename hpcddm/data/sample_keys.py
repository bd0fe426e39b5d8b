"""Keys of samples: their hashes, and text files that name some, one per line: the list of an expert that joins."""

import hashlib
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import UInt32

from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.columns import TextColumn
from hpcddm.errors import UserError, require
from hpcddm.files import text_files

MAX_KEYS_SHOWN = 5
"""Number of wrong keys that an error names."""


def hash_of(text: str) -> int:
    """Hash a key, or a caption, to 64 bits, in every process the same ones."""
    # Keys need not be UTF-8, as names in a tar need not.
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest(), "little")


def read(path: Path) -> dict[str, None]:
    """Read the keys in a file, in its order; empty lines say nothing, and a line may end in any way.

    Raises `UserError` naming the file when it cannot be read, has no key, or has one twice.
    """
    keys: dict[str, None] = {}
    repeated: dict[str, None] = {}
    try:
        # Keys need not be UTF-8, as names in a tar need not.
        with text_files.open_text(path) as file:
            for line in file:
                key = line.rstrip("\n")
                (repeated if key in keys else keys)[key] = None
    except OSError as error:
        raise UserError(f"{path}: keys of samples cannot be read ({error.strerror}); put the file back") from None
    except ValueError as error:
        raise UserError(f"{path}: keys of samples cannot be read ({error}); write it in UTF-8") from None
    for named in (keys, repeated):
        named.pop("", None)
    require(bool(keys), f"{path}: names no sample; write one key per line")
    require(not repeated, f"{path}: several times in it: {_some(repeated)}; name every sample once")
    return keys


def numbers_of(
    keys: Iterable[str], path: Path, column: TextColumn, advance: Callable[[int], object]
) -> UInt32[np.ndarray, " n"]:
    """Find the numbers of the samples with some keys, in ascending order, in one pass over the keys of all.

    It takes memory for the keys that are looked for and for one block of the column. path: of the file with the keys;
    advance: called with the number of samples that are behind. Raises `UserError` naming keys that no sample has.
    """
    missing, found = dict.fromkeys(keys), []
    for block in split_into_blocks(range(len(column))):
        for number, key in zip(block, column.gather(block), strict=True):
            if key in missing:
                del missing[key]
                found.append(number)
        advance(block.stop)
    require(
        not missing,
        f"{path}: of no training sample: {_some(missing)}; data().keys(...) of hpcddm.open(RUN) has them all",
    )
    return np.array(found, dtype=np.uint32)


def _some(keys: dict[str, None]) -> str:
    """Count keys and name the first of them."""
    named = ", ".join(repr(key) for key in islice(keys, MAX_KEYS_SHOWN))
    return f"{len(keys)} keys ({named}{', ...' * (len(keys) > MAX_KEYS_SHOWN)})"
