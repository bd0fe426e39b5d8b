"""An order of samples in which every cluster comes equally often."""

from collections.abc import Sequence

import numpy as np

from hpcddm.data.reader import SampleOrder


class BalancedOrder:
    """Endless order: clusters in turn, the samples of each in a new random order in every epoch of its own.

    clusters: (N,), the cluster of every row; those without a row are left out. As in `SampleOrder`, the sample at index
    n is a function of (seed, stream, n) alone. Within a cluster every sample is seen equally often, so that its images
    and classes keep their own frequencies.
    """

    def __init__(self, seed: int, stream: str, clusters: np.ndarray) -> None:
        self._rows = [np.flatnonzero(clusters == cluster) for cluster in np.unique(clusters)]
        self._orders = [SampleOrder(seed, f"{stream}/cluster-{clusters[rows[0]]}", len(rows)) for rows in self._rows]

    def dataset_indices(self, sample_indices: Sequence[int]) -> np.ndarray:
        """Return the rows at some indices of the endless order: int64 (N,)."""
        return np.array([self._row(sample_index) for sample_index in sample_indices], dtype=np.int64)

    def _row(self, sample_index: int) -> int:
        turn, cluster = divmod(sample_index, len(self._rows))
        return self._rows[cluster][self._orders[cluster].dataset_indices([turn])[0]]
