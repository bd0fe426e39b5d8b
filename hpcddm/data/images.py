"""Images by sample number, in tars by byte offset: those of a catalog, or the copy of a list's."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import UInt8

from hpcddm.config import variants
from hpcddm.config.data import TransformSettings
from hpcddm.config.schema import validate
from hpcddm.data import pictures
from hpcddm.data.catalog import Catalog, PictureForm, Tar
from hpcddm.data.columns import Column, Numbers
from hpcddm.data.pictures import PictureError
from hpcddm.data.transforms.base import Transform
from hpcddm.errors import UserError, require
from hpcddm.files import reading
from hpcddm.files.reading import Unreadable

MOST_OPEN = 128
"""Largest number of tars that are open together; a process may usually have 1024 files open."""
V = TypeVar("V")
Pixels = Callable[[bytes], UInt8[np.ndarray, "h w c"]]
"""Decoder of a picture's file; raises `PictureError`."""


class Images(ABC):
    """Images of samples by their number."""

    @abstractmethod
    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        """Return the images of some samples, from any thread; raises `UserError` naming what cannot be read."""


class TarImages(Images):
    """Images in the tars of a catalog, by their numbers in it."""

    def __init__(self, catalog: Catalog) -> None:
        self._tars, self._offsets, self._sizes = map(catalog.column, ("tar", "offset", "size"))
        # A thread may read a tar that is no longer among the latest: its file is closed behind the last of them.
        self._tar = lru_cache(MOST_OPEN)(lambda number: _OpenTar(*catalog.tar(number)))
        self._pixels = _as_stored if catalog.form is None else pixels_by(catalog.form)

    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        return np.stack(self._read(numbers, lambda tar, offset, size: tar.image(offset, size, self._pixels)))

    def files(self, numbers: Numbers) -> list[bytes]:
        """Return the images' files as they stand in the tars."""
        return self._read(numbers, _OpenTar.content)

    def _read(self, numbers: Numbers, read: Callable[["_OpenTar", int, int], V]) -> list[V]:
        """Read some samples by tar, offset and size, in each tar from front to back."""
        columns = (column.gather(numbers).tolist() for column in (self._tars, self._offsets, self._sizes))
        places = list(enumerate(zip(*columns, strict=True)))
        found = {}
        for row, (tar, offset, size) in sorted(places, key=itemgetter(1)):
            found[row] = read(self._tar(tar), offset, size)
        return [found[row] for row, _ in places]


class CopiedImages(Images):
    """Images in a copy of samples, by their numbers in the catalog of all.

    numbers: those of the copied samples, in ascending order.
    """

    def __init__(self, copy: Catalog, numbers: Column) -> None:
        self._images, self._numbers = TarImages(copy), numbers

    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        return self._images.images(self._numbers.find(numbers))


class _OpenTar:
    """One tar, open until nobody reads it; raises `UserError` when it is missing or another one than was indexed."""

    def __init__(self, path: Path, tar: Tar) -> None:
        self._path = path
        advice = (
            "submit again to make it anew" if tar.changed is None else "bring it back, or index it with --redo shard"
        )
        try:
            self._descriptor = reading.open_regular(path, follows_links=True)
        except (FileNotFoundError, Unreadable) as error:
            reason = error.reason if isinstance(error, Unreadable) else error.strerror
            raise UserError(f"{path}: cannot be read ({reason}); {advice}") from None
        # The bytes around a sample are those of other experts.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        status = os.fstat(self._descriptor)
        require(status.st_size == tar.size, f"{path} has {status.st_size} bytes instead of {tar.size}; {advice}")
        if tar.changed is not None:
            require(int(status.st_mtime) == tar.changed, f"{path} was changed after it had been indexed; {advice}")

    def __del__(self) -> None:
        with suppress(AttributeError):
            os.close(self._descriptor)

    def content(self, offset: int, size: int) -> bytes:
        """Read the bytes at a place; raises `UserError` naming the tar."""
        content = os.pread(self._descriptor, size, offset)
        if len(content) != size:
            raise self._torn(offset, f"{len(content)} of {size} bytes")
        return content

    def image(self, offset: int, size: int, pixels: Pixels) -> UInt8[np.ndarray, "h w c"]:
        """Read and decode the image at a place in bytes; raises `UserError` naming the tar."""
        try:
            return pixels(self.content(offset, size))
        except PictureError as error:
            raise self._torn(offset, str(error)) from None

    def _torn(self, offset: int, reason: str) -> UserError:
        return UserError(f"{self._path}: torn at byte {offset} ({reason})")


def pixels_by(form: PictureForm) -> Pixels:
    """Return the function that decodes a picture's file in a form."""
    transform = variants.create(Transform, validate(TransformSettings, form.transform, "the catalog"))
    return lambda content: pictures.decode(content, form.channels, form.size, transform)


def _as_stored(content: bytes) -> UInt8[np.ndarray, "h w c"]:
    pixels = np.asarray(pictures.read_picture(content))
    return pixels if pixels.ndim == 3 else pixels[..., None]
