"""Files of arrays, HDF5 and npz, read row by row in memory that does not grow with the file."""

import hashlib
import math
import os
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import h5py
import numpy as np
from PIL import Image

from hpcddm.errors import UserError, require
from hpcddm.files import atomic, checked_reads, hdf5

FAILURES = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""Exceptions that h5py, zipfile and NumPy raise for a torn or damaged file."""
WHOLE_BYTES = 1 << 30
"""Largest file whose bytes are all hashed, which takes seconds."""
HASHED_CHUNKS, CHUNK_BYTES = 256, 1 << 16
"""Of a larger file so many pieces of so many bytes are hashed."""
CHANNELS = (1, 3, 4)
"""Numbers of channels that an image may have."""
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Readers of the header of an npy file, by its version."""


class ArrayRows(ABC):
    """Rows of one array, the items of its first dimension.

    place: file and name, for errors; at_once: number of rows that are read together.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    at_once: int = 1
    _block: int = -1
    _rows: Any = None

    def __init__(self, path: Path, name: str) -> None:
        self.place = f"{path}: {name}"

    def row(self, number: int) -> Any:
        """Read one row, an array or a text; rows in ascending order are read fastest.

        Raises `UserError` naming the array when the file is damaged.
        """
        block, place = divmod(number, self.at_once)
        if block != self._block:
            with _named(self.place):
                self._rows = self._read(block * self.at_once, (block + 1) * self.at_once)
            self._block = block
        row = self._rows[place]
        return str(row) if isinstance(row, str) else row

    def whole(self) -> np.ndarray:
        """Read all rows; raises `UserError` naming the array when the file is damaged."""
        with _named(self.place):
            return self._read(0, self.shape[0])

    @abstractmethod
    def _read(self, start: int, stop: int) -> np.ndarray:
        """Read the rows from one to another, fewer at the end of the array."""


class Hdf5Rows(ArrayRows):
    """Rows of an HDF5 dataset; all rows of a chunk are read at once, for each would decompress it."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        with hdf5.convert_errors(path):
            with _opened(path) as plain:
                file = hdf5.open_unchecked(plain)
            dataset = hdf5.find_dataset(file, name)
            if dataset is not None:
                hdf5.require_usable(path, name, dataset, is_user_file=True)
        if dataset is None:
            raise _unknown(path, name)
        self.shape, self.dtype = dataset.shape or (), dataset.dtype
        self._dataset = dataset.asstr() if h5py.check_string_dtype(dataset.dtype) else dataset
        self.at_once = dataset.chunks[0] if dataset.chunks else 1

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self._dataset[start:stop]


class NpzRows(ArrayRows):
    """Rows of an array in an npz archive, compressed or not, which is read forwards from row to row."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        with _named(str(path)):
            with _opened(path) as plain:
                stored = os.fstat(plain.fileno()).st_size
                archive = zipfile.ZipFile(_descriptor(plain))
        if f"{name}.npy" not in archive.namelist():
            raise _unknown(path, name)
        with _named(self.place):
            member = archive.getinfo(f"{name}.npy")
            self._stream: IO[bytes] = archive.open(member)
            self.shape, in_columns, self.dtype = self._header()
        if in_columns or self.dtype.hasobject or not self.shape:
            raise UserError(
                f"{self.place}: Python objects, a scalar, or an array in Fortran's order; save a plain array, texts as"
                " one of dtype str"
            )
        self._start = self._stream.tell()
        self._size = math.prod(self.shape[1:]) * self.dtype.itemsize
        declared = self._start + self.shape[0] * self._size
        if min(self.shape) < 0 or declared != member.file_size or declared > hdf5.MAX_COMPRESSION_RATIO * stored:
            fault = f"declares {declared:,} bytes of the {member.file_size:,} that its archive of {stored:,} bytes says"
            raise UserError(f"{self.place}: {fault}; a torn or damaged file")

    def _read(self, start: int, stop: int) -> np.ndarray:
        self._stream.seek(self._start + start * self._size)
        content = self._stream.read((stop - start) * self._size)
        return np.frombuffer(content, self.dtype).reshape(stop - start, *self.shape[1:])

    def _header(self) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        """Read shape, whether the array is in Fortran's order, and dtype."""
        version = np.lib.format.read_magic(self._stream)
        require(version in HEADERS, f"version {version} of the format npy", ValueError)
        return HEADERS[version](self._stream)


def open_rows(path: Path, name: str) -> ArrayRows:
    """Open one array of a file; raises `UserError` naming the file, and the arrays that it has."""
    with _named(str(path)), _opened(path) as plain:
        is_hdf5, is_archive = _is_hdf5(plain), zipfile.is_zipfile(plain)
    if is_hdf5:
        return Hdf5Rows(path, name)
    if is_archive:
        return NpzRows(path, name)
    raise UserError(f"{path}: neither HDF5 nor npz, or a torn one")


def are_channels_first(rows: ArrayRows) -> bool | None:
    """Tell if the channels of images come first; None for an array without images."""
    shape = rows.shape
    if rows.dtype != np.uint8 or len(shape) not in (3, 4) or min(shape) < 1:
        return None
    if len(shape) == 3 or shape[3] in CHANNELS:
        return False
    return True if shape[1] in CHANNELS else None


def picture_of(rows: ArrayRows, number: int, channels_first: bool) -> Image.Image:
    """Read one image of an array; raises `UserError` naming the array when the file is damaged."""
    pixels = rows.row(number)
    if channels_first:
        pixels = np.moveaxis(pixels, 0, -1)
    return Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)


def array_names(path: Path) -> list[str]:
    """List the arrays of a file; raises `UserError` naming it when it cannot be read."""
    with _named(str(path)), _opened(path) as plain:
        if not _is_hdf5(plain):
            with zipfile.ZipFile(plain) as archive:
                return sorted(member.removesuffix(".npy") for member in archive.namelist())
        with hdf5.open_unchecked(plain) as file:
            return [place for place, _ in hdf5.list_datasets(file, is_user_file=True)]


def content_hash(path: Path) -> str:
    """Hash a file; of a large one its size and pieces from its beginning to its end."""
    size = path.stat().st_size
    if size <= WHOLE_BYTES:
        return atomic.sha256(path)
    hashed = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for start in np.linspace(0, size - CHUNK_BYTES, HASHED_CHUNKS, dtype=np.int64).tolist():
            file.seek(start)
            hashed.update(file.read(CHUNK_BYTES))
    return hashed.hexdigest()


def _opened(path: Path) -> BinaryIO:
    """Open a regular file that the user names."""
    return open(checked_reads.open_regular(path, follows_links=True), "rb")


def _is_hdf5(plain: BinaryIO) -> bool:
    return bool(h5py.is_hdf5(_descriptor(plain)))


def _descriptor(plain: BinaryIO) -> str:
    """Return a path that leads to the file that was opened, whatever has its name by now."""
    return f"/proc/self/fd/{plain.fileno()}"


def _unknown(path: Path, name: str) -> UserError:
    return UserError(f"{path}: has no array {name}; it has {', '.join(array_names(path)) or 'none'}")


@contextmanager
def _named(place: str) -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        raise UserError(f"{place}: cannot be read ({error}); a torn or damaged file") from None
