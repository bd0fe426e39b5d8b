"""Files of samples that are open for reading: tars and Arrow files by offset, parquet files by row."""

import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from hpcddm.data.image_decoding import ImageError
from hpcddm.data.row_groups import ParquetImages, open_parquet, readable
from hpcddm.data.sample_file import SampleFile
from hpcddm.errors import UserError, require
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable

Pixels = Callable[[bytes], UInt8[np.ndarray, "h w c"]]
"""Decoder of a picture's file; raises `ImageError`."""
CACHE_BYTES = 256 << 20
"""Bytes of the row groups that are kept for further images in them; of larger ones, the latest."""


class OpenFile(ABC):
    """One open file; raises `UserError` if it is missing or has changed since it was indexed."""

    def __init__(self, path: Path, tar: SampleFile) -> None:
        self._path = path
        self._advice = (
            "submit again to make it" if tar.changed is None else "bring it back, or index it with --redo shard"
        )
        try:
            self._descriptor = checked_reads.open_regular(path, follows_links=True)
        except (FileNotFoundError, Unreadable) as error:
            reason = error.reason if isinstance(error, Unreadable) else error.strerror
            raise UserError(f"{path}: cannot be read ({reason}); {self._advice}") from None
        status = os.fstat(self._descriptor)
        require(status.st_size == tar.size, f"{path} has {status.st_size} bytes instead of {tar.size}; {self._advice}")
        if tar.changed is not None:
            require(
                int(status.st_mtime) == tar.changed, f"{path} was changed after it had been indexed; {self._advice}"
            )

    def __del__(self) -> None:
        with suppress(AttributeError):
            os.close(self._descriptor)

    @abstractmethod
    def content(self, offset: int, size: int) -> bytes:
        """Read the bytes of one image; raises `UserError` naming the file."""

    def image(self, offset: int, size: int, pixels: Pixels) -> UInt8[np.ndarray, "h w c"]:
        """Read and decode an image; raises `UserError` naming the file."""
        try:
            return pixels(self.content(offset, size))
        except ImageError as error:
            raise self._torn(offset, str(error)) from None

    def _torn(self, offset: int, reason: str) -> UserError:
        return UserError(f"{self._path}: torn at byte {offset} ({reason})")


class FileByOffset(OpenFile):
    """File in which an image is a range of bytes, such as a tar."""

    def __init__(self, path: Path, tar: SampleFile) -> None:
        super().__init__(path, tar)
        # The bytes around a sample are those of other experts.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def content(self, offset: int, size: int) -> bytes:
        content = os.pread(self._descriptor, size, offset)
        if len(content) != size:
            raise self._torn(offset, f"{len(content)} of {size} bytes")
        return content


@runtime_checkable
class Sized(Protocol):
    """Row group in memory."""

    @property
    def bytes(self) -> int:
        """Bytes that it takes."""


G = TypeVar("G", bound=Sized)


@dataclass
class _Entry(Generic[G]):
    """A row group, once it is read; the lock lets one thread read it for all."""

    group: G | None = None
    bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class RowGroupCache(Generic[G]):
    """The latest row groups of parquet files, for further images of the same groups; thread-safe.

    Args:
        max_bytes: Bytes that are kept; of groups that are larger, the latest.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._entries: OrderedDict[Hashable, _Entry[G]] = OrderedDict()
        self._lock, self._max_bytes, self._bytes = threading.Lock(), max_bytes, 0

    def get(self, key: Hashable, read: Callable[[], G]) -> G:
        """Return a row group.

        Args:
            key: File and number of the group.
            read: Function that reads the group, called if it is not kept.
        """
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
        with entry.lock:
            if entry.group is None:
                entry.group = read()
                entry.bytes = entry.group.bytes
                self._make_room(entry)
            return entry.group

    def _make_room(self, latest: _Entry[G]) -> None:
        with self._lock:
            self._bytes += latest.bytes
            for key, entry in list(self._entries.items()):
                if self._bytes <= self._max_bytes:
                    return
                # An entry without bytes is being read.
                if entry is not latest and entry.bytes:
                    self._bytes -= self._entries.pop(key).bytes


class FileByRow(OpenFile):
    """Parquet file in which an image is a row; its row group is read, and kept in the cache."""

    def __init__(self, path: Path, tar: SampleFile, groups: RowGroupCache[ParquetImages]) -> None:
        super().__init__(path, tar)
        self._groups, self._column, self._lock = groups, tar.column, threading.Lock()
        self._file = open_parquet(path)
        metadata = self._file.metadata
        counts = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
        self._starts = [*accumulate(counts, initial=0)]

    def content(self, offset: int, size: int) -> bytes:
        number = bisect_right(self._starts, offset) - 1
        require(offset < self._starts[-1], f"{self._path}: has no row {offset}; fetch it again")
        images = self._groups.get((self._path, number), partial(self._read, number))
        content = images.content(offset - self._starts[number])
        if len(content) != size:
            raise UserError(f"{self._path}: row {offset} has {len(content)} bytes instead of {size}; {self._advice}")
        return content

    def _read(self, number: int) -> ParquetImages:
        """Read the images of a row group; raises `UserError` naming the file."""
        # One reader of pyarrow is not for several threads.
        with self._lock, readable(self._path):
            return ParquetImages(self._file.read_row_group(number, [self._column], use_threads=False).column(0))

    def _torn(self, offset: int, reason: str) -> UserError:
        return UserError(f"{self._path}: row {offset} is damaged ({reason}); {self._advice}")


def open_file(path: Path, tar: SampleFile, groups: RowGroupCache[ParquetImages] | None = None) -> OpenFile:
    """Open a file of samples for reading.

    Args:
        path: The file.
        tar: Its entry in the catalog.
        groups: Cache of the row groups of parquet files; None for a cache of its own.

    Raises:
        UserError: The file is missing, or has changed since it was indexed.
    """
    return FileByOffset(path, tar) if tar.column is None else FileByRow(path, tar, groups or RowGroupCache())
