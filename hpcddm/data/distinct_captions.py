"""Distinct captions of samples, numbered: sorted on disk by their hashes, some at a time, whatever their number."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Int64

from hpcddm.data.catalog import TEXTS_AT_ONCE, split_into_blocks
from hpcddm.data.column_files import RowBlocks, Spool, write_columns
from hpcddm.data.columns import TextColumn

CAPTION, NUMBER, STATES = "caption", "caption_number", "states"
"""Columns of the distinct captions, of the number of every sample's, and of the states of a range of captions."""
SORTED_AT_ONCE = 1 << 20
"""Number of captions that are sorted together, and of samples whose captions' numbers are in memory together."""
NUMBER_TYPE = np.dtype("<u4")
RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("place", "<u8"), ("bytes", "<u4")])
"""Hash of a caption, its sample's place through all columns, and the length of its text."""
PLACED = np.dtype([("place", "<u8"), ("number", NUMBER_TYPE)])


def write_distinct(
    columns: Mapping[str, TextColumn],
    captions: Path,
    numbers: Callable[[str], Path],
    advance: Callable[[int], None],
) -> int:
    """Write the distinct captions, and for every column the number of each sample's; return how many there are.

    They are in the order of the first 128 bits of their BLAKE2b, which tells them apart: the same captions have the
    same order, in whatever tars their samples lie. numbers: function from a column's name to its file. advance: called
    with the number of samples whose captions are hashed; it may raise. The folder of `captions` holds, beside what is
    written, the captions once more and 40 bytes per sample, in files without a name; memory holds blocks.
    """
    starts = dict(zip(columns, accumulate(map(len, columns.values()), initial=0), strict=False))
    total = sum(map(len, columns.values()))
    spans = [range(start, start + len(columns[name])) for name, start in starts.items()]
    blocks = [block for span in spans for block in split_into_blocks(span, SORTED_AT_ONCE)]
    edges = np.array([block.start for block in blocks], dtype=np.int64)
    with ExitStack() as stack:

        def files(count: int) -> list[BinaryIO]:
            return [stack.enter_context(tempfile.TemporaryFile(dir=captions.parent)) for _ in range(count)]

        buckets = [_Bucket(*files(2)) for _ in range(-(-total // SORTED_AT_ONCE))]
        _distribute(columns, buckets, advance)
        placed = files(len(blocks))
        with Spool(captions.parent) as spool:
            for bucket in buckets:
                _place(bucket, spool, edges, placed)
            spool.write(captions)
            count = spool.rows
        for name, column in columns.items():
            start, stop = starts[name], starts[name] + len(column)
            mine = [(block, file) for block, file in zip(blocks, placed, strict=True) if start <= block.start < stop]
            write_columns(numbers(name), {NUMBER: RowBlocks((len(column),), NUMBER_TYPE, _in_order(mine))})
    return count


@dataclass(frozen=True)
class _Bucket:
    """Captions whose hashes are neighbours, in files: records, and the texts one behind the other."""

    records: BinaryIO
    texts: BinaryIO

    def distinct(self, spool: Spool) -> tuple[np.ndarray, Int64[np.ndarray, " n"]]:
        """Append the distinct captions, in the order of their hashes, and return all records with their numbers."""
        for file in (self.records, self.texts):
            file.seek(0)
        records, texts = np.fromfile(self.records, RECORD), self.texts.read()
        for file in (self.records, self.texts):
            file.close()
        ends = np.concatenate([[0], np.cumsum(records["bytes"], dtype=np.int64)])
        order = np.lexsort((records["low"], records["high"]))
        hashes = records[["high", "low"]][order]
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = hashes[1:] != hashes[:-1]
        numbers = spool.rows + np.cumsum(is_first) - 1
        for rows in split_into_blocks(order[is_first], TEXTS_AT_ONCE):
            places = zip(ends[rows].tolist(), ends[rows + 1].tolist(), strict=True)
            spool.append({CAPTION: [str(texts[begin:end], "utf-8", "surrogateescape") for begin, end in places]})
        return records[order], numbers


def _distribute(columns: Mapping[str, TextColumn], buckets: Sequence[_Bucket], advance: Callable[[int], None]) -> None:
    """Write every caption into the bucket of its hash; those of a bucket come before those of the next."""
    place = 0
    for column in columns.values():
        for block in split_into_blocks(range(len(column)), TEXTS_AT_ONCE):
            texts = [text.encode(errors="surrogateescape") for text in column.gather(block)]
            records = _records(texts, place)
            owners = ((records["high"] >> np.uint64(32)) * np.uint64(len(buckets)) >> np.uint64(32)).astype(np.int64)
            by_owner = np.argsort(owners, kind="stable")
            edges = [0, *(np.flatnonzero(np.diff(owners[by_owner])) + 1).tolist(), len(texts)]
            for start, stop in pairwise(edges):
                rows = by_owner[start:stop]
                bucket = buckets[owners[rows[0]]]
                bucket.records.write(records[rows].tobytes())
                bucket.texts.write(b"".join(texts[row] for row in rows.tolist()))
            place += len(texts)
            advance(place)


def _records(texts: Sequence[bytes], first: int) -> np.ndarray:
    """Describe texts of consecutive samples."""
    hashes = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
    pairs = np.frombuffer(hashes, ">u8").reshape(-1, 2)
    records = np.empty(len(texts), RECORD)
    records["high"], records["low"] = pairs[:, 0], pairs[:, 1]
    records["place"] = np.arange(first, first + len(texts))
    records["bytes"] = np.fromiter(map(len, texts), np.int64, len(texts))
    return records


def _place(bucket: _Bucket, spool: Spool, edges: Int64[np.ndarray, " b"], placed: Sequence[BinaryIO]) -> None:
    """Number the captions of a bucket, and write the numbers into the files of their samples' blocks."""
    records, numbers = bucket.distinct(spool)
    both = np.empty(len(records), PLACED)
    both["place"], both["number"] = records["place"], numbers
    owners = np.searchsorted(edges, both["place"].astype(np.int64), side="right") - 1
    for owner in np.unique(owners).tolist():
        placed[owner].write(both[owners == owner].tobytes())


def _in_order(files: Sequence[tuple[range, BinaryIO]]) -> Iterator[np.ndarray]:
    """Yield the captions' numbers of blocks of samples, in their order."""
    for block, file in files:
        file.seek(0)
        placed = np.fromfile(file, PLACED)
        file.close()
        numbers = np.empty(len(block), NUMBER_TYPE)
        numbers[placed["place"].astype(np.int64) - block.start] = placed["number"]
        yield numbers
