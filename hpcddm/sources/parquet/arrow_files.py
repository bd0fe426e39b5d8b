"""Arrow files of samples, as `Dataset.save_to_disk` writes them: their images are read by offset."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcddm.data.row_groups import pyarrow_for, readable
from hpcddm.errors import UserError, require
from hpcddm.sources.parquet.parquet_files import rows_of_batch
from hpcddm.sources.parquet.row_files import Row, RowFile, require_columns

FILE_MAGIC = b"ARROW1"
"""Beginning of a file of Arrow's file format; others are streams."""
STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
"""End of a stream that was written to its end; one that ends after a batch looks complete without it."""


def read_schema(path: Path) -> Any:
    """Return the schema of an Arrow file; raise `UserError` naming a file that is damaged."""
    arrow = pyarrow_for(path)
    with readable(path), arrow.memory_map(str(path)) as mapped:
        is_file = mapped.read(len(FILE_MAGIC)) == FILE_MAGIC
        mapped.seek(0)
        return (arrow.ipc.open_file if is_file else arrow.ipc.open_stream)(mapped).schema


@dataclass(frozen=True)
class ArrowFile(RowFile):
    """An Arrow file with a row per sample, a stream or of the file format; it is mapped, not read."""

    @property
    def schema(self) -> Any:
        return read_schema(self.path)

    @property
    def row_count(self) -> int:
        return sum(map(len, self._batches))

    def rows(self, columns: Collection[str], start: int = 0) -> Iterator[Row]:
        if not self._batches:
            return
        present = self._batches[0].schema.names
        require_columns(self, [self.roles.image, *columns], present)
        wanted = dict.fromkeys(name.partition(".")[0] for name in [self.roles.image, *columns])
        number = 0
        with readable(self.path):
            for batch in self._batches:
                if number + len(batch) > start:
                    yield from rows_of_batch(self, batch.select(list(wanted)), number, start)
                number += len(batch)

    def column(self, name: str) -> Any:
        arrow = pyarrow_for(self.path)
        if not self._batches:
            return arrow.chunked_array([], arrow.string())
        require_columns(self, [name], self._batches[0].schema.names)
        with readable(self.path):
            return arrow.chunked_array([batch.column(name) for batch in self._batches])

    def locator(self) -> Callable[[Row], int]:
        return self._offset

    def _offset(self, row: Row) -> int:
        offset = int(row.buffer.address - self._mapped.address)
        if not 0 <= offset <= self._mapped.size - row.buffer.size:
            raise UserError(f"{self.path}: its columns are compressed; write it again without compression")
        return offset

    @cached_property
    def _mapped(self) -> Any:
        """Buffer with the bytes of the whole file."""
        with readable(self.path):
            return pyarrow_for(self.path).memory_map(str(self.path)).read_buffer()

    @cached_property
    def _batches(self) -> list[Any]:
        arrow, buffer = pyarrow_for(self.path), self._mapped
        with readable(self.path):
            if buffer[: len(FILE_MAGIC)].to_pybytes() == FILE_MAGIC:
                reader = arrow.ipc.open_file(buffer)
                return [reader.get_batch(number) for number in range(reader.num_record_batches)]
            require(buffer[-len(STREAM_END) :].to_pybytes() == STREAM_END, "no end of the stream", ValueError)
            return list(arrow.ipc.open_stream(buffer))
