"""Reads samples from arrays, as `reader.TarReader` does from tars."""

from collections.abc import Sequence

import numpy as np
import torch


class ArrayReader:
    """Images (N, H, W, C) uint8, which may be memory-mapped, with their classes and clusters (N,)."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, clusters: np.ndarray) -> None:
        self._images, self._labels, self._clusters = images, labels, clusters

    def __len__(self) -> int:
        return len(self._images)

    def images(self, dataset_indices: Sequence[int]) -> np.ndarray:
        """Return the images of some samples: uint8 (N, H, W, C)."""
        return self._images[np.asarray(dataset_indices)]

    def labels(self, dataset_indices: Sequence[int]) -> torch.Tensor:
        """Return the classes of some samples: int64 (N,)."""
        return torch.from_numpy(self._labels[np.asarray(dataset_indices)].astype(np.int64))

    def clusters(self, dataset_indices: Sequence[int]) -> torch.Tensor:
        """Return the cluster ids of some samples: int64 (N,)."""
        return torch.from_numpy(self._clusters[np.asarray(dataset_indices)].astype(np.int64))
