"""Parquet files of samples. Images that are stored as they are have byte offsets; others are found by their rows."""

import mmap
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any

from hpcddm.data.row_groups import buffers_of, bytes_of, open_parquet, readable, values_of_column
from hpcddm.errors import require
from hpcddm.sources.parquet.row_files import Row, RowFile, require_columns
from hpcddm.sources.source_files import RowGroup

ROWS_AT_ONCE = 64
"""Rows that are in memory together."""
PLAIN = frozenset({"PLAIN", "RLE", "BIT_PACKED"})
"""Encodings of a column whose values are stored as they are; the last two are those of levels."""


@dataclass(frozen=True)
class ParquetFile(RowFile):
    """A parquet file with a row per sample.

    `datasets` writes images uncompressed and plain, each after its length in four bytes: they are read by offset, as
    those of tars. Of other files a training reads whole row groups.
    """

    @property
    def schema(self) -> Any:
        return self._footer[1]

    @property
    def row_count(self) -> int:
        return int(self._footer[0].num_rows)

    @property
    def images_column(self) -> str | None:
        return None if self._is_plain else self.roles.bytes_column

    def rows(self, columns: Collection[str], start: int = 0) -> Iterator[Row]:
        require_columns(self, [self.roles.image, *columns], self.schema.names)
        wanted = [self.roles.bytes_column, *columns]
        first, groups = 0, self._footer[0]
        with readable(self.path), open_parquet(self.path) as opened:
            for number in range(groups.num_row_groups):
                end = first + groups.row_group(number).num_rows
                if end > start:
                    yield from self._rows_of(opened, number, first, wanted, start)
                first = end

    def row_groups(self) -> list[RowGroup]:
        if self._is_plain:
            return []
        return [
            RowGroup(chunk.num_values, chunk.total_uncompressed_size, chunk.total_compressed_size)
            for chunk in self._chunks()
        ]

    def column(self, name: str) -> Any:
        require_columns(self, [name], self.schema.names)
        with readable(self.path), open_parquet(self.path) as opened:
            return opened.read(columns=[name], use_threads=False).column(0)

    def locator(self) -> Callable[[Row], int]:
        return _Cursor(self.path, self._chunks()).find if self._is_plain else attrgetter("number")

    def _rows_of(self, opened: Any, group: int, first: int, columns: list[str], start: int) -> Iterator[Row]:
        """Yield the rows of one row group; opened: the file of pyarrow; first: number of the group's first row."""
        number = first
        for batch in opened.iter_batches(ROWS_AT_ONCE, [group], columns, use_threads=False):
            if number + len(batch) > start:
                yield from rows_of_batch(self, batch, number, start)
            number += len(batch)

    @cached_property
    def _footer(self) -> tuple[Any, Any]:
        """Metadata and Arrow schema; the file does not stay open, as a data set may have thousands."""
        with open_parquet(self.path) as opened:
            return opened.metadata, opened.schema_arrow

    @cached_property
    def _is_plain(self) -> bool:
        """True if the images of all row groups are stored as they are."""
        return all(_is_plain(chunk) for chunk in self._chunks())

    def _chunks(self) -> list[Any]:
        """List the metadata of the images' column in all row groups."""
        groups = self._footer[0]
        if groups.num_row_groups == 0:
            return []
        paths = [groups.schema.column(place).path for place in range(groups.num_columns)]
        require_columns(self, [self.roles.image], self.schema.names)
        require(self.roles.bytes_column in paths, f"{self.path}: {self.roles.bytes_column} is not a column of bytes")
        place = paths.index(self.roles.bytes_column)
        return [groups.row_group(number).column(place) for number in range(groups.num_row_groups)]


class _Cursor:
    """Place in the bytes of a file up to which its images have been found, in the order of their rows."""

    def __init__(self, path: Path, chunks: list[Any]) -> None:
        self._path = path
        self._ends = list(accumulate(chunk.num_values for chunk in chunks))
        starts = [chunk.data_page_offset for chunk in chunks]
        self._spans = [
            (start, start + chunk.total_compressed_size) for start, chunk in zip(starts, chunks, strict=True)
        ]
        self._group, self._place = -1, 0
        with open(path, "rb") as plain:
            self._bytes = mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_READ)

    def find(self, row: Row) -> int:
        """Return the offset of a row's image; rows come in ascending order."""
        group = bisect_right(self._ends, row.number)
        start, stop = self._spans[group]
        if group != self._group:
            self._group, self._place = group, start
        stored = struct.pack("<I", row.buffer.size) + row.buffer.to_pybytes()
        place = self._place
        if self._bytes[place : place + len(stored)] != stored:
            # Rows were left out, or a page ends here.
            place = self._bytes.find(stored, place, stop)
        require(place >= 0, f"{self._path}: damaged: the image of row {row.number} is not where its column is")
        self._place = place + len(stored)
        return place + 4


def _is_plain(chunk: Any) -> bool:
    return bool(
        chunk.compression == "UNCOMPRESSED"
        and chunk.physical_type == "BYTE_ARRAY"
        and not chunk.has_dictionary_page
        and PLAIN.issuperset(chunk.encodings)
    )


def rows_of_batch(file: RowFile, batch: Any, number: int, start: int) -> Iterator[Row]:
    """Yield the rows of a record batch.

    Args:
        file: Its file.
        batch: Record batch of pyarrow.
        number: Number of its first row in the file.
        start: Number of the first row that is wanted.
    """
    image = batch.column(file.roles.image)
    others: dict[str, list[Any]] = {
        name: values_of_column(batch.column(name)) for name in batch.schema.names if name != file.roles.image
    }
    if file.roles.is_struct:
        content = image.field("bytes")
        if "path" in [own.name for own in image.type]:
            others[f"{file.roles.image}.path"] = values_of_column(image.field("path"))
    else:
        content = bytes_of(image)
    buffers = buffers_of(content)
    for place in range(max(start - number, 0), len(batch)):
        yield Row(number + place, buffers[place], {name: own[place] for name, own in others.items()})
