"""Images in parquet files, a row group at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hpcddm.errors import UserError
from hpcddm.errors.next_step import install_command

READ_BYTES = 1 << 20
"""Bytes that are read at once of a column, so that a large row group never needs as much memory again."""
LFS_POINTER = b"version https://git-lfs"
"""Beginning of the text that a clone without Git LFS has in place of a large file."""


class ParquetImages:
    """Encoded images of one row group.

    Args:
        column: Chunked array of bytes, or of structs around them.
    """

    def __init__(self, column: Any) -> None:
        chunks = [bytes_of(chunk) for chunk in column.chunks]
        self._buffers = [buffer for chunk in chunks for buffer in buffers_of(chunk)]
        self.bytes: int = sum(chunk.nbytes for chunk in chunks)

    def content(self, row: int) -> bytes:
        """Return the bytes of an image; empty for a row without any.

        Args:
            row: Number of the row in its row group.
        """
        buffer = self._buffers[row]
        return b"" if buffer is None else buffer.to_pybytes()


def open_parquet(path: Path) -> Any:
    """Open a parquet file as pyarrow's `ParquetFile`; raises `UserError` naming the file."""
    parquet = pyarrow_for(path).parquet
    with readable(path):
        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=READ_BYTES)


def bytes_of(chunk: Any) -> Any:
    """Return the array of bytes inside the structs of a column that was read without its other fields."""
    while hasattr(chunk, "field"):
        chunk = chunk.field(0)
    return chunk


def values_of_column(column: Any) -> list[Any]:
    """Return the values of a column; bytes of a text that are not UTF-8 become lone surrogates, which are refused."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        texts = column.cast("binary").to_pylist()
        values = [None if text is None else text.decode(errors="surrogateescape") for text in texts]
    return values


def buffers_of(values: Any) -> list[Any]:
    """Return the buffer of each value of an array of bytes, which are not copied; None for a missing value."""
    if not str(values.type).endswith("binary"):
        return [value.as_buffer() for value in values]
    _, offsets, data = values.buffers()
    kind = np.int64 if str(values.type) == "large_binary" else np.int32
    ends = np.frombuffer(offsets, kind)[values.offset : values.offset + len(values) + 1].tolist()
    valid = values.is_valid().to_pylist()
    return [
        data.slice(start, end - start) if is_there else None
        for start, end, is_there in zip(ends[:-1], ends[1:], valid, strict=True)
    ]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise what pyarrow raises for a damaged file as a `UserError` that names it."""
    arrow = pyarrow_for(path)
    try:
        yield
    except (arrow.ArrowException, OSError, ValueError, IndexError) as error:
        raise UserError(f"{path}: {_reason(path, error)}; fetch it again, or remove it") from None


def _reason(path: Path, error: Exception) -> str:
    try:
        with open(path, "rb") as file:
            is_pointer = file.read(len(LFS_POINTER)) == LFS_POINTER
    except OSError as failure:
        return f"cannot be read ({failure.strerror})"
    if is_pointer:
        return "only the pointer that Git LFS leaves, not the file ('git lfs pull' fetches it)"
    return f"damaged or truncated ({str(error).splitlines()[0] if str(error) else type(error).__name__})"


def pyarrow_for(path: Path) -> ModuleType:
    """Import pyarrow; raises `UserError` naming the file that needs it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        needed = f"needs the package pyarrow; install it with: {install_command('pyarrow')}"
        raise UserError(f"{path}: {needed}") from None
    return pyarrow
