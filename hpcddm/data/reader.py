"""Readers of samples by number: their images, and what else is known of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from torch import Tensor

from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column, Numbers
from hpcddm.data.images import Images, TarImages
from hpcddm.errors import UserError


class Reader(ABC):
    """Images of a split by sample number 0 ... N - 1, and what else is known of the samples."""

    split: str | None = None
    """Split of the run whose samples they are, by the numbers that they have there; None for those of no run."""

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
    """Samples in tars; `images` raises `UserError` naming the tar when bytes are missing or no image.

    clusters: of all samples, None before they are known; images: the way to the images, by default the run's own tars.
    """

    def __init__(self, catalog: Catalog, clusters: Column | None = None, images: Images | None = None) -> None:
        self._catalog, self._clusters = catalog, clusters
        self.split = catalog.split
        self._images = images or TarImages(catalog)
        self._labels = catalog.column("label") if catalog.has("label") else None
        self._captions = catalog.texts("caption") if catalog.has("caption") else None

    def __len__(self) -> int:
        return len(self._catalog)

    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        return self._images.images(numbers)

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
