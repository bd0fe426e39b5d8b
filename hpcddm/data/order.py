"""Endless orders of training samples, in which the sample at index n is a function of (seed, stream, n) alone."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Int, Int64

from hpcddm.data import draws


class Order(ABC):
    """An endless order of the rows of a reader."""

    def dataset_indices(self, sample_indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        """Return the rows at some indices of the endless order."""
        return np.array([self._row(sample_index) for sample_index in sample_indices], dtype=np.int64)

    @abstractmethod
    def _row(self, sample_index: int) -> int:
        """Return the row at one index of the endless order."""


class SampleOrder(Order):
    """Order of all rows, a new random one in every epoch."""

    def __init__(self, seed: int, stream: str, size: int) -> None:
        self._seed, self._stream, self._size = seed, stream, size
        # Threads ask at once, and not in order.
        self._order_of = lru_cache(2)(self._permuted)

    def _row(self, sample_index: int) -> int:
        epoch, position = divmod(sample_index, self._size)
        return int(self._order_of(epoch)[position])

    def _permuted(self, epoch: int) -> Int64[np.ndarray, " n"]:
        return draws.permutation(self._seed, f"{self._stream}/order/{epoch}", self._size)


class BalancedOrder(Order):
    """Order that takes the clusters in turn, the rows of each in a new random order in every epoch of its own.

    clusters: the cluster of every row; those without a row are left out. Within a cluster every row is seen
    equally often, so that its images and classes keep their own frequencies.
    """

    def __init__(self, seed: int, stream: str, clusters: Int[np.ndarray, " n"]) -> None:
        self._rows = [np.flatnonzero(clusters == cluster) for cluster in np.unique(clusters)]
        self._orders = [SampleOrder(seed, f"{stream}/cluster-{clusters[rows[0]]}", len(rows)) for rows in self._rows]

    def _row(self, sample_index: int) -> int:
        turn, cluster = divmod(sample_index, len(self._rows))
        return int(self._rows[cluster][self._orders[cluster].dataset_indices([turn])[0]])
