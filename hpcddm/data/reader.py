"""Readers of samples by number: images, classes, clusters and captions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from torch import Tensor

from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column, Numbers, gather_rows
from hpcddm.data.images import CatalogImages, ImageStore
from hpcddm.errors import UserError


class Reader(ABC):
    """Images and annotations of the samples of a split, by sample number 0 ... N - 1; annotations may be missing."""

    split: str | None = None
    """Split of the run whose samples it reads, with the same numbers; None for samples outside of a run."""
    _labels: Callable[[Numbers], np.ndarray] | None = None
    _clusters: Callable[[Numbers], np.ndarray] | None = None
    _captions: Callable[[Numbers], list[str]] | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        """Return the images of some samples.

        Args:
            numbers: (N,) numbers of samples, in any order.

        Returns:
            Images, (N, H, W, C), uint8.
        """

    def labels(self, numbers: Numbers) -> Int64[Tensor, " n"]:
        """Return the classes of some samples.

        Args:
            numbers: (N,) numbers of samples, in any order.

        Returns:
            Class numbers, (N,).

        Raises:
            UserError: The samples do not have classes.
        """
        if self._labels is None:
            raise UserError("the images have no classes")
        return torch.from_numpy(self._labels(numbers).astype(np.int64))

    def clusters(self, numbers: Numbers) -> Int64[Tensor, " n"]:
        """Return the clusters of some samples.

        Args:
            numbers: (N,) numbers of samples, in any order.

        Returns:
            Cluster numbers 0 ... K - 1, (N,).

        Raises:
            ValueError: The clusters are not known.
        """
        if self._clusters is None:
            raise ValueError("this stage does not read the samples' clusters")
        return torch.from_numpy(self._clusters(numbers).astype(np.int64))

    def captions(self, numbers: Numbers) -> list[str]:
        """Return the captions of some samples.

        Args:
            numbers: (N,) numbers of samples, in any order.

        Returns:
            N captions.

        Raises:
            UserError: The samples do not have captions.
        """
        if self._captions is None:
            raise UserError("the images have no captions")
        return self._captions(numbers)


class CatalogReader(Reader):
    """Reader of samples in tars.

    Args:
        catalog: Catalog of the split.
        clusters: Clusters of all samples; None before they are known.
        images: Source of the images; by default the run's own tars.
    """

    def __init__(self, catalog: Catalog, clusters: Column | None = None, images: ImageStore | None = None) -> None:
        self._catalog, self._clusters = catalog, None if clusters is None else clusters.gather
        self.split = catalog.split
        self._images = images or CatalogImages(catalog)
        self._labels = catalog.column("label").gather if catalog.has("label") else None
        self._captions = catalog.texts("caption").gather if catalog.has("caption") else None

    def __len__(self) -> int:
        return len(self._catalog)

    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        """Return the images of some samples, (N, H, W, C), uint8; raise `UserError` naming a tar that is damaged."""
        return self._images.images(numbers)

    def keys(self, numbers: Numbers) -> list[str]:
        """Return the keys of some samples, as used in files."""
        return self._catalog.texts("key").gather(numbers)


class ArrayReader(Reader):
    """Reader of samples in arrays, which may be memory-mapped.

    Args:
        images: (N, H, W, C), uint8.
        labels: Class numbers, (N,).
        clusters: Cluster numbers, (N,).
        captions: N captions; None for samples without captions.

    Examples:
        >>> reader = ArrayReader(np.zeros((2, 8, 8, 3), np.uint8), labels=np.array([7, 3]), clusters=np.array([0, 1]))
        >>> reader.images([1]).shape, reader.labels([1])
        ((1, 8, 8, 3), tensor([3]))
    """

    def __init__(
        self,
        images: UInt8[np.ndarray, "n h w c"],
        labels: Int[np.ndarray, " n"],
        clusters: Int[np.ndarray, " n"],
        captions: Sequence[str] | None = None,
    ) -> None:
        self._images = images
        self._labels, self._clusters = partial(gather_rows, labels), partial(gather_rows, clusters)
        self._captions = None if captions is None else lambda numbers: [captions[number] for number in numbers]

    def __len__(self) -> int:
        return len(self._images)

    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        """Return the images of some samples, (N, H, W, C), uint8."""
        return self._images[np.asarray(numbers)]
