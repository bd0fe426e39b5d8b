"""Fine clusters by k-means, merged two by two into K coarse ones: agglomerative clustering."""

from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64

from hpcddm.clustering.two_stage import TwoStage
from hpcddm.config.clustering import TwoStageSettings

Linkage = Literal["ward", "average"]


class HierarchicalSettings(TwoStageSettings):
    """Fine clusters, and which two clusters are merged next, again and again.

    `ward` merges those whose union raises the inertia of all samples least (Ward, 1963); `average` merges those with
    the least mean of the squared distances between fine centroids of both, each counted as often as it has samples.
    """

    linkage: Linkage = "ward"


class Hierarchical(TwoStage[HierarchicalSettings]):
    """Coarse clusters by linkage of the fine centroids, weighted by their sizes."""

    def merge_fine(
        self, fine: Float32[np.ndarray, "m d"], sizes: Int64[np.ndarray, " m"], num_clusters: int, seed: int
    ) -> tuple[Float32[np.ndarray, "k d"], Int64[np.ndarray, " m"]]:
        points = fine.astype(np.float64)
        # A fine cluster that is empty counts as one sample, as new samples may be in it.
        weights = np.maximum(sizes, 1).astype(np.float64)
        clusters = merge_clusters(points, weights, num_clusters, self.settings.linkage)
        sums = np.zeros((num_clusters, fine.shape[1]))
        np.add.at(sums, clusters, weights[:, None] * points)
        return (sums / np.bincount(clusters, weights, num_clusters)[:, None]).astype(np.float32), clusters


def merge_clusters(
    points: Float64[np.ndarray, "m d"], weights: Float64[np.ndarray, " m"], num_clusters: int, linkage: Linkage
) -> Int64[np.ndarray, " m"]:
    """Merge points until so many clusters are left, numbered in the order of their first points; O(m^2) in most cases.

    Distances from a merged cluster follow from those of its two parts (Lance and Williams, 1967).
    """
    sizes, clusters = weights.copy(), np.arange(len(points))
    squares = np.square(points).sum(1)
    distances = np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0)
    if linkage == "ward":
        distances *= sizes[:, None] * sizes / (sizes[:, None] + sizes)
    np.fill_diagonal(distances, np.inf)
    partners = distances.argmin(1)
    least = distances.min(1)
    for _ in range(len(points) - num_clusters):
        kept = int(least.argmin())
        kept, gone = sorted((kept, int(partners[kept])))
        row = _of_union(distances, sizes, kept, gone, linkage)
        distances[kept] = distances[:, kept] = row
        distances[gone] = distances[:, gone] = np.inf
        sizes[kept] += sizes[gone]
        clusters[clusters == gone] = kept
        nearer = row < least
        partners[nearer], least[nearer] = kept, row[nearer]
        # Clusters whose partner was one of the two look for another one.
        stale = np.flatnonzero(np.isin(partners, (kept, gone)) & ~nearer)
        stale = np.append(stale, kept)
        partners[stale], least[stale] = distances[stale].argmin(1), distances[stale].min(1)
        least[gone] = np.inf
    return np.unique(clusters, return_inverse=True)[1].reshape(-1)


def _of_union(
    distances: Float64[np.ndarray, "m m"], sizes: Float64[np.ndarray, " m"], first: int, second: int, linkage: Linkage
) -> Float64[np.ndarray, " m"]:
    """Return the distances of all clusters from the union of two."""
    both = sizes[first] + sizes[second]
    if linkage == "average":
        return (sizes[first] * distances[first] + sizes[second] * distances[second]) / both
    parts = (sizes[first] + sizes) * distances[first] + (sizes[second] + sizes) * distances[second]
    return (parts - sizes * distances[first, second]) / (both + sizes)
