"""Images by sample number, read from the files of a catalog, or from a copy of a list's images."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import UInt8

from hpcddm.config import variants
from hpcddm.config.data_variants import TransformSettings
from hpcddm.config.schema import validate
from hpcddm.data import image_decoding
from hpcddm.data.catalog import Catalog, ImageFormat
from hpcddm.data.columns import Column, Numbers
from hpcddm.data.image_decoding import ImageError
from hpcddm.data.open_files import OpenFile, Pixels, RowGroupCache, open_file
from hpcddm.data.row_groups import ParquetImages
from hpcddm.data.transforms.base import Transform
from hpcddm.errors import UserError
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable

MAX_OPEN_IMAGE_FILES = 128
"""Largest number of files that are open at once; a process may usually have 1024."""
V = TypeVar("V")


class ImageStore(ABC):
    """Images of samples by their number."""

    @abstractmethod
    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        """Return the images of some samples; thread-safe.

        Args:
            numbers: (N,) numbers of samples, in any order.

        Returns:
            Images, (N, H, W, C), uint8.

        Raises:
            UserError: An image cannot be read; the message names its file.
        """


class CatalogImages(ImageStore):
    """Images in the tars or other files of a catalog, by sample number.

    Args:
        catalog: Catalog of the samples.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tars, self._offsets, self._sizes = map(catalog.column, ("tar", "offset", "size"))
        self._pictures = catalog.texts("file") if catalog.has("file") else None
        self._checksums = catalog.column("crc32") if catalog.has("file") else None
        groups = RowGroupCache[ParquetImages]()
        # A thread may read a file that is no longer among the latest: it is closed after the last reader.
        self._file = lru_cache(MAX_OPEN_IMAGE_FILES)(lambda number: open_file(*catalog.tar(number), groups))
        self._pixels = _as_stored if catalog.image_format is None else decoder_for(catalog.image_format)

    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        """Return the images of some samples, (N, H, W, C), uint8."""
        return np.stack(self._read(numbers, lambda file, offset, size: file.image(offset, size, self._pixels)))

    def files(self, numbers: Numbers) -> list[bytes]:
        """Return the bytes of the image files of some samples, as stored in the tars."""
        return self._read(numbers, lambda file, offset, size: file.content(offset, size))

    def _read(self, numbers: Numbers, read: Callable[["OpenFile | _Picture", int, int], V]) -> list[V]:
        """Read some samples by file, offset and size, sequentially in each file."""
        if self._pictures is not None:
            return self._read_pictures(numbers, read)
        columns = (column.gather(numbers).tolist() for column in (self._tars, self._offsets, self._sizes))
        places = list(enumerate(zip(*columns, strict=True)))
        results = {}
        for row, (tar, offset, size) in sorted(places, key=itemgetter(1)):
            results[row] = read(self._file(tar), offset, size)
        return [results[row] for row, _ in places]

    def _read_pictures(self, numbers: Numbers, read: Callable[["OpenFile | _Picture", int, int], V]) -> list[V]:
        """Read some samples that are files of their own."""
        assert self._pictures is not None and self._checksums is not None
        columns = (self._sizes.gather(numbers).tolist(), self._checksums.gather(numbers).tolist())
        rows = zip(self._pictures.gather(numbers), *columns, strict=True)
        return [read(_Picture(self._catalog.source_file(name), crc32), 0, size) for name, size, crc32 in rows]


class CopiedImages(ImageStore):
    """Images in a copy of some samples, by their numbers in the original catalog.

    Args:
        copy: Catalog of the copy.
        numbers: Original numbers of the copied samples, in ascending order.
    """

    def __init__(self, copy: Catalog, numbers: Column) -> None:
        self._images, self._numbers = CatalogImages(copy), numbers

    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        """Return the images of some samples, (N, H, W, C), uint8."""
        return self._images.images(self._numbers.find_rows(numbers))


class _Picture:
    """File of one picture in the folder of its source."""

    def __init__(self, path: Path, crc32: int) -> None:
        self._path, self._crc32 = path, crc32

    def content(self, _: int, size: int) -> bytes:
        """Read the file; raises `UserError` if it is missing or has changed since it was indexed."""
        advice = "bring it back, or index the images with --redo shard"
        try:
            # A pipe in its place would hold the training up.
            content = checked_reads.read_bytes(self._path, size, follows_links=True)
        except (OSError, Unreadable) as error:
            reason = error.reason if isinstance(error, Unreadable) else error.strerror
            raise UserError(f"{self._path}: cannot be read ({reason}); {advice}") from None
        if len(content) != size or zlib.crc32(content) != self._crc32:
            raise UserError(f"{self._path} was changed after it had been indexed; {advice}")
        return content

    def image(self, offset: int, size: int, pixels: Pixels) -> UInt8[np.ndarray, "h w c"]:
        """Read and decode the picture; raises `UserError` naming the file."""
        try:
            return pixels(self.content(offset, size))
        except ImageError as error:
            raise UserError(f"{self._path}: {error}") from None


def decoder_for(image_format: ImageFormat) -> Pixels:
    """Return a function that decodes a picture's file to an image format."""
    transform = variants.create(Transform, validate(TransformSettings, image_format.transform, "the catalog"))
    return lambda content: image_decoding.decode(content, image_format.channels, image_format.size, transform)


def _as_stored(content: bytes) -> UInt8[np.ndarray, "h w c"]:
    pixels = np.asarray(image_decoding.read_image(content))
    return pixels if pixels.ndim == 3 else pixels[..., None]
