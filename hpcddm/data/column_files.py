"""Writing columns to HDF5 files of contiguous datasets, from rows in memory or block by block."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import h5py
import numpy as np

from hpcddm.data.columns import BYTES, OFFSETS, VALUES
from hpcddm.errors import require
from hpcddm.files import atomic

BYTES_AT_ONCE = 1 << 22
"""Bytes of a spooled column that are in memory at once while it is written."""
Rows = np.ndarray | Sequence[str] | Sequence[np.ndarray]
"""Rows of a column in memory: one array, N texts, or N arrays that differ only in their first dimension."""


@dataclass(frozen=True)
class RowBlocks:
    """Rows of a column as consecutive blocks with `shape[0]` rows in all; only one block is in memory at a time."""

    shape: tuple[int, ...]
    dtype: np.dtype
    blocks: Iterable[np.ndarray]


def write_columns(path: Path, columns: Mapping[str, Rows | RowBlocks]) -> None:
    """Write columns of equal length to one HDF5 file that `Column`, `TextColumn` and `RaggedColumn` can map.

    Args:
        path: File to write. An existing one is replaced only if writing succeeds.
        columns: Rows of each column by name: an array, texts, several rows for every sample, or blocks.

    Raises:
        ValueError: The lengths differ, or blocks have fewer rows than their shape.
    """
    with atomic.replacing(path, durable=False) as staged, h5py.File(staged, "w") as file:
        counts = {name: _write(file, name, values) for name, values in columns.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"{path}: columns of one file have equally many rows, not {counts}")


def write_together(
    path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype, blocks: Iterable[Mapping[str, np.ndarray]]
) -> None:
    """Write columns whose blocks are computed together, such as features of two views of the same images.

    Args:
        path: File to write. An existing one is replaced only if writing succeeds.
        shapes: Shape of each column by name; all have the same number of rows.
        dtype: Type of the values.
        blocks: Consecutive blocks of rows of all columns, by name.

    Raises:
        ValueError: Rows or columns are missing, or there are too many.
    """
    with atomic.replacing(path, durable=False) as staged, h5py.File(staged, "w") as file:
        datasets, start = {name: file.create_dataset(name, shape, dtype) for name, shape in shapes.items()}, 0
        count = min(map(len, datasets.values()))
        for block in blocks:
            lengths = {len(rows) for rows in block.values()}
            if block.keys() != datasets.keys() or len(lengths) != 1 or start + min(lengths) > count:
                found = {name: len(rows) for name, rows in block.items()}
                raise ValueError(f"{path}: a block of {found} rows behind {start} of {count} of {', '.join(datasets)}")
            end = start + lengths.pop()
            for name, rows in block.items():
                datasets[name][start:end] = rows
            start = end
        require(start == count, f"{path}: {start} of {count} rows", ValueError)


class Spool:
    """Context manager for columns whose length is not known in advance: blocks wait in temporary files until written.

    Args:
        folder: Folder of the temporary files, which have no names and disappear if the process is killed.

    Examples:
        >>> from hpcddm.data.columns import Column
        >>> with tempfile.TemporaryDirectory() as folder, Spool(Path(folder)) as spool:
        ...     for block in ([1, 2], [3]):
        ...         spool.append({"label": np.array(block)})
        ...     spool.write(Path(folder, "columns.h5"))
        ...     Column("label", {Path(folder, "columns.h5"): spool.rows}).gather(range(3))
        array([1, 2, 3])
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._datasets = folder, dict[str, _Spooled]()
        self.names: list[str] = []
        self.rows = 0

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for spooled in self._datasets.values():
            spooled.file.close()

    def append(self, columns: Mapping[str, Rows]) -> None:
        """Append a block of rows; an empty block is ignored.

        Args:
            columns: Rows by column; every block has the same columns in the same order.

        Raises:
            ValueError: The columns differ from those of earlier blocks, or their lengths differ.
        """
        counts = {len(rows) for rows in columns.values()}
        if counts == {0}:
            return
        if len(counts) != 1 or (self.names and list(columns) != self.names):
            raise ValueError(f"{', '.join(columns)}: not equally many rows of {', '.join(self.names)}")
        self.names = list(columns)
        self.rows += counts.pop()
        for name, rows in columns.items():
            if isinstance(rows, np.ndarray):
                self._add(name, rows)
            else:
                values, content, lengths = _joined(name, rows)
                first = self._datasets[values].rows if values in self._datasets else 0
                ends = np.array([*accumulate(lengths, initial=first)], dtype="<u8")
                self._add(values, content)
                self._add(f"{name}/{OFFSETS}", ends[1:] if f"{name}/{OFFSETS}" in self._datasets else ends)

    def clear(self) -> None:
        """Forget all rows."""
        self.__exit__(None, None, None)
        self.__init__(self._folder)  # type: ignore[misc]

    def write(self, path: Path) -> None:
        """Write all rows to one HDF5 file, as `write_columns` does."""
        with atomic.replacing(path, durable=False) as staged, h5py.File(staged, "w") as file:
            for name, spooled in self._datasets.items():
                _write(file, name, spooled.blocks())

    def _add(self, name: str, rows: np.ndarray) -> None:
        if name not in self._datasets:
            file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 (closed by `__exit__`)
            self._datasets[name] = _Spooled(file, rows.dtype, rows.shape[1:])
        spooled = self._datasets[name]
        spooled.file.write(np.ascontiguousarray(rows, spooled.dtype).data)
        spooled.rows += len(rows)


@dataclass
class _Spooled:
    """A dataset that waits in a file."""

    file: BinaryIO
    dtype: np.dtype
    item_shape: tuple[int, ...]
    rows: int = field(default=0)

    def blocks(self) -> RowBlocks:
        """Return the rows as blocks that are read when they are needed."""
        return RowBlocks((self.rows, *self.item_shape), self.dtype, self._read())

    def _read(self) -> Iterator[np.ndarray]:
        item = np.dtype((self.dtype, self.item_shape))
        at_once = max(BYTES_AT_ONCE // item.itemsize, 1)
        self.file.seek(0)
        for start in range(0, self.rows, at_once):
            content = self.file.read(min(at_once, self.rows - start) * item.itemsize)
            yield np.frombuffer(content, self.dtype).reshape(-1, *self.item_shape)


def _write(file: h5py.File, name: str, values: Rows | RowBlocks) -> int:
    """Write one column and return its number of rows."""
    if isinstance(values, np.ndarray):
        file.create_dataset(name, data=values)
        return len(values)
    if not isinstance(values, RowBlocks):
        dataset_name, content, lengths = _joined(name, values)
        file.create_dataset(dataset_name, data=content)
        ends = accumulate(lengths, initial=0)
        file.create_dataset(f"{name}/{OFFSETS}", data=np.array([*ends], dtype="<u8"))
        return len(values)
    dataset, start = file.create_dataset(name, values.shape, values.dtype), 0
    for block in values.blocks:
        dataset[start : start + len(block)] = block
        start += len(block)
    require(start == len(dataset), f"{name}: {start} of {len(dataset)} rows", ValueError)
    return start


def _joined(name: str, rows: Sequence[str] | Sequence[np.ndarray]) -> tuple[str, np.ndarray, list[int]]:
    """Concatenate the texts, or the rows, of all samples: (name of the dataset, values, length of each sample)."""
    arrays = [row for row in rows if isinstance(row, np.ndarray)]
    if arrays:
        return f"{name}/{VALUES}", np.concatenate(arrays), list(map(len, arrays))
    texts = [text.encode(errors="surrogateescape") for text in rows if isinstance(text, str)]
    return f"{name}/{BYTES}", np.frombuffer(b"".join(texts), np.uint8), list(map(len, texts))
