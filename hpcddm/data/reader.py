"""Readers of samples by number, from shared, read-only tars by byte offset or from arrays; and pixels as tensors."""

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from PIL import Image
from torch import Tensor

from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column, Numbers
from hpcddm.errors import UserError, require

MOST_OPEN = 128
"""Largest number of tars that are open together; a process may usually have 1024 files open."""


class Reader(ABC):
    """Images of a split by sample number 0 ... N - 1, and what else is known of the samples."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the samples."""

    @abstractmethod
    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        """Return the images of some samples."""

    @abstractmethod
    def labels(self, numbers: Numbers) -> Int64[Tensor, " n"]:
        """Return the classes of some samples; raises `UserError` for samples without classes."""

    @abstractmethod
    def clusters(self, numbers: Numbers) -> Int64[Tensor, " n"]:
        """Return the cluster ids of some samples."""

    @abstractmethod
    def captions(self, numbers: Numbers) -> list[str]:
        """Return the captions of some samples; raises `UserError` for samples without captions."""


class TarReader(Reader):
    """Samples in shared, read-only tars; `images` raises `UserError` naming the tar when bytes are missing or no image.

    clusters: of all samples; None before they are known.
    """

    def __init__(self, catalog: Catalog, clusters: Column | None = None) -> None:
        self._catalog, self._clusters = catalog, clusters
        self._tars, self._offsets, self._sizes = map(catalog.column, ("tar", "offset", "size"))
        self._labels = catalog.column("label") if catalog.has("label") else None
        self._captions = catalog.texts("caption") if catalog.has("caption") else None
        # A thread may read a tar that is no longer among the latest: its file is closed behind the last of them.
        self._tar = lru_cache(MOST_OPEN)(lambda number: _OpenTar(*catalog.tar(number)))

    def __len__(self) -> int:
        return len(self._catalog)

    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        places = (column.gather(numbers).tolist() for column in (self._tars, self._offsets, self._sizes))
        return np.stack([self._tar(tar).image(offset, size) for tar, offset, size in zip(*places, strict=True)])

    def labels(self, numbers: Numbers) -> Int64[Tensor, " n"]:
        if self._labels is None:
            raise UserError("the images have no classes")
        return torch.from_numpy(self._labels.gather(numbers).astype(np.int64))

    def clusters(self, numbers: Numbers) -> Int64[Tensor, " n"]:
        if self._clusters is None:
            raise ValueError("this stage does not read the samples' clusters")
        return torch.from_numpy(self._clusters.gather(numbers).astype(np.int64))

    def captions(self, numbers: Numbers) -> list[str]:
        if self._captions is None:
            raise UserError("the images have no captions")
        return self._captions.gather(numbers)

    def keys(self, numbers: Numbers) -> list[str]:
        """Return the keys of some samples, by which files name them."""
        return self._catalog.texts("key").gather(numbers)


class _OpenTar:
    """One tar, open until nobody reads it; raises `UserError` when it is missing or has another size."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); submit again to make it anew") from None
        present = os.fstat(self._descriptor).st_size
        require(present == size, f"{path} has {present} bytes instead of {size}; submit again to make it anew")

    def __del__(self) -> None:
        with suppress(AttributeError):
            os.close(self._descriptor)

    def image(self, offset: int, size: int) -> UInt8[np.ndarray, "h w c"]:
        """Read and decode the image at a place in bytes; raises `UserError` naming the tar."""
        content = os.pread(self._descriptor, size, offset)
        try:
            if len(content) != size:
                raise ValueError(f"{len(content)} of {size} bytes")
            pixels = np.asarray(Image.open(io.BytesIO(content)))
        except (ValueError, OSError, SyntaxError) as error:
            # Pillow calls a broken PNG chunk a SyntaxError.
            raise UserError(f"{self._path}: torn at byte {offset} ({error})") from None
        return pixels if pixels.ndim == 3 else pixels[..., None]


class ArrayReader(Reader):
    """Samples in arrays, of which the images may be memory-mapped."""

    def __init__(
        self,
        images: UInt8[np.ndarray, "n h w c"],
        labels: Int[np.ndarray, " n"],
        clusters: Int[np.ndarray, " n"],
        captions: Sequence[str] | None = None,
    ) -> None:
        self._images, self._labels, self._clusters, self._captions = images, labels, clusters, captions

    def __len__(self) -> int:
        return len(self._images)

    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        return self._images[np.asarray(numbers)]

    def labels(self, numbers: Numbers) -> Int64[Tensor, " n"]:
        return torch.from_numpy(self._labels[np.asarray(numbers)].astype(np.int64))

    def clusters(self, numbers: Numbers) -> Int64[Tensor, " n"]:
        return torch.from_numpy(self._clusters[np.asarray(numbers)].astype(np.int64))

    def captions(self, numbers: Numbers) -> list[str]:
        if self._captions is None:
            raise UserError("these samples have no captions")
        return [self._captions[number] for number in numbers]
