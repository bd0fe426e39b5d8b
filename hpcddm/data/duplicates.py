"""Keys that several samples share: their hashes are sorted on disk, some at a time, whatever the number of samples."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Bool, Int64

from hpcddm.data.catalog import TEXTS_AT_ONCE, split_into_blocks
from hpcddm.data.columns import TextColumn

HASHES_AT_ONCE = 1 << 20
"""Number of hashes, of 8 bytes, that are sorted together."""


def find_repeated_keys(columns: Sequence[TextColumn], folder: Path) -> Int64[np.ndarray, " n"]:
    """List the places of samples whose key a sample before them has, in ascending order.

    Places count through all columns, one behind the other. folder: its disk takes 8 bytes per sample, in files without
    a name. Memory holds, beside a block, the keys that are shared.
    """
    shared = _shared_hashes(columns, folder)
    places: list[int] = []
    seen: set[str] = set()
    start = 0
    for keys in _blocks(columns) if len(shared) else ():
        # Keys with equal hashes need not be equal.
        for row in np.flatnonzero(_is_in(_hashes(keys), shared)).tolist():
            if keys[row] in seen:
                places.append(start + row)
            seen.add(keys[row])
        start += len(keys)
    return np.array(places, dtype=np.int64)


def _shared_hashes(columns: Sequence[TextColumn], folder: Path) -> Int64[np.ndarray, " n"]:
    """List the hashes that several keys have, in ascending order."""
    count = -(-sum(map(len, columns)) // HASHES_AT_ONCE)
    with ExitStack() as stack:
        buckets = [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(count)]
        for keys in _blocks(columns):
            hashes = _hashes(keys)
            owners = hashes % count
            for bucket in np.unique(owners).tolist():
                buckets[bucket].write(hashes[owners == bucket].tobytes())
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *map(_shared_in, buckets)]))


def _shared_in(bucket: BinaryIO) -> Int64[np.ndarray, " n"]:
    """List the hashes that are in a file several times."""
    bucket.seek(0)
    hashes = np.fromfile(bucket, dtype=np.int64)
    hashes.sort()
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _blocks(columns: Sequence[TextColumn]) -> Iterator[list[str]]:
    for keys in columns:
        for block in split_into_blocks(range(len(keys)), TEXTS_AT_ONCE):
            yield keys.gather(block)


def _hashes(keys: list[str]) -> Int64[np.ndarray, " n"]:
    return np.fromiter(map(hash, keys), np.int64, len(keys))


def _is_in(values: Int64[np.ndarray, " n"], ascending: Int64[np.ndarray, " m"]) -> Bool[np.ndarray, " n"]:
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return ascending[places] == values
