"""Readers of samples, from shared, read-only tars by byte offset or from arrays; and pixels as tensors."""

import io
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from PIL import Image
from torch import Tensor

from hpcddm.errors import UserError


class Reader(ABC):
    """Images, classes and clusters of a list of samples, by row."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the samples."""

    @abstractmethod
    def images(self, dataset_indices: Sequence[int] | np.ndarray) -> UInt8[np.ndarray, "n h w c"]:
        """Return the images of some samples."""

    @abstractmethod
    def labels(self, dataset_indices: Sequence[int] | np.ndarray) -> Int64[Tensor, " n"]:
        """Return the classes of some samples."""

    @abstractmethod
    def clusters(self, dataset_indices: Sequence[int] | np.ndarray) -> Int64[Tensor, " n"]:
        """Return the cluster ids of some samples."""


class TarReader(Reader):
    """Samples in shared, read-only tars; `images` raises `UserError` naming the tar when bytes are missing or no image.

    samples: (N,) of dtype `tar.SAMPLE`, whose `shard` is an index into `tars`.
    """

    def __init__(self, tars: Sequence[Path], samples: np.ndarray) -> None:
        self.samples = samples
        self._tars = tars
        self._files: dict[int, int] = {}
        self._opening = threading.Lock()

    def __len__(self) -> int:
        return len(self.samples)

    def images(self, dataset_indices: Sequence[int] | np.ndarray) -> UInt8[np.ndarray, "n h w c"]:
        return np.stack([self._image(self.samples[dataset_index]) for dataset_index in dataset_indices])

    def labels(self, dataset_indices: Sequence[int] | np.ndarray) -> Int64[Tensor, " n"]:
        return torch.from_numpy(self.samples["label"][dataset_indices].astype(np.int64))

    def clusters(self, dataset_indices: Sequence[int] | np.ndarray) -> Int64[Tensor, " n"]:
        return torch.from_numpy(self.samples["cluster"][dataset_indices].astype(np.int64))

    def _image(self, sample: np.void) -> UInt8[np.ndarray, "h w c"]:
        shard, size = int(sample["shard"]), int(sample["size"])
        with self._opening:
            if shard not in self._files:
                self._files[shard] = os.open(self._tars[shard], os.O_RDONLY)
        content = os.pread(self._files[shard], size, int(sample["offset"]))
        try:
            if len(content) != size:
                raise ValueError(f"{len(content)} of {size} bytes")
            pixels = np.asarray(Image.open(io.BytesIO(content)))
        except (ValueError, OSError, SyntaxError) as error:
            # Pillow calls a broken PNG chunk a SyntaxError.
            raise UserError(f"{self._tars[shard]}: torn at byte {sample['offset']} ({error})") from None
        return pixels if pixels.ndim == 3 else pixels[..., None]


class ArrayReader(Reader):
    """Samples in arrays, of which the images may be memory-mapped."""

    def __init__(
        self, images: UInt8[np.ndarray, "n h w c"], labels: Int[np.ndarray, " n"], clusters: Int[np.ndarray, " n"]
    ) -> None:
        self._images, self._labels, self._clusters = images, labels, clusters

    def __len__(self) -> int:
        return len(self._images)

    def images(self, dataset_indices: Sequence[int] | np.ndarray) -> UInt8[np.ndarray, "n h w c"]:
        return self._images[np.asarray(dataset_indices)]

    def labels(self, dataset_indices: Sequence[int] | np.ndarray) -> Int64[Tensor, " n"]:
        return torch.from_numpy(self._labels[np.asarray(dataset_indices)].astype(np.int64))

    def clusters(self, dataset_indices: Sequence[int] | np.ndarray) -> Int64[Tensor, " n"]:
        return torch.from_numpy(self._clusters[np.asarray(dataset_indices)].astype(np.int64))
