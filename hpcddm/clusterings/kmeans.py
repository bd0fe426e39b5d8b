"""Two-stage k-means: many fine clusters, then K coarse ones from the fine centroids (arXiv 2501.05450, sec. 3.2)."""

from typing import Any, Literal

import faiss
import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Int64

from hpcddm.clusterings.base import FeatureClustering
from hpcddm.clusterings.partition import FeaturePartition
from hpcddm.clusterings.settings import ClusteringSettings
from hpcddm.schema import Positive

ROWS_PER_BLOCK = 4096


class Settings(ClusteringSettings):
    """Fine clusters, Lloyd iterations, restarts, and the assignment of a sample to a coarse cluster.

    `fine_lookup` takes the coarse cluster of the nearest fine centroid (what the code of MoDE does);
    `nearest_coarse` takes the nearest coarse centroid (what the paper's text says).
    """

    fine: Positive = 1024
    iterations: Positive = 50
    nredo: Positive = 5
    assignment: Literal["fine_lookup", "nearest_coarse"] = "fine_lookup"

    def check(self, experiment: Any) -> None:
        """Raise ValueError when there are fewer fine clusters than experts."""
        if self.fine < experiment.cluster.experts:
            raise ValueError(f"fine {self.fine} is less than experts {experiment.cluster.experts}")


class NearestCentroid(FeaturePartition):
    """The cluster of the nearest centroid.

    mean: of the training features; centroids: compared after centring and L2-normalising features; coarse: the cluster
    of each centroid.
    """

    def __init__(
        self, mean: Float[np.ndarray, " d"], centroids: Float[np.ndarray, "m d"], coarse: Int[np.ndarray, " m"]
    ):
        self.mean, self.centroids, self.coarse = mean, centroids, coarse

    def assign_features(self, features: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        nearest = np.empty(len(features), dtype=np.int64)
        for rows in _blocks(len(features)):
            nearest[rows] = _nearest(_normalise(features[rows], self.mean), self.centroids)
        return self.coarse[nearest]

    def arrays(self) -> dict[str, np.ndarray]:
        return {"mean": self.mean, "centroids": self.centroids, "coarse": self.coarse}


class KMeans(FeatureClustering[Settings]):
    """Fine clusters of the features, and coarse clusters of the fine centroids."""

    def fit_features(self, features: Float[np.ndarray, "n d"], num_clusters: int, seed: int) -> NearestCentroid:
        """Cluster features into `num_clusters` non-empty clusters; the number of threads changes nothing.

        Raises ValueError for features that are not finite, that are fewer than the fine clusters, or that leave
        a cluster empty.
        """
        settings = self.settings
        if not np.isfinite(features).all():
            raise ValueError("features contain NaN or infinity")
        if len(features) < settings.fine:
            raise ValueError(f"{len(features)} samples are fewer than {settings.fine} fine clusters")
        mean = features.mean(0, dtype=np.float64)
        points = np.empty(features.shape, dtype=np.float32)
        for rows in _blocks(len(features)):
            points[rows] = _normalise(features[rows], mean)
        fine = _lloyd(points, settings.fine, settings, seed)
        coarse = _lloyd(fine, num_clusters, settings, seed)
        if settings.assignment == "nearest_coarse":
            partition = NearestCentroid(mean, coarse, np.arange(num_clusters))
        else:
            partition = NearestCentroid(mean, fine, _nearest(fine, coarse))
        sizes = np.bincount(partition.assign_features(features), minlength=num_clusters)
        if not sizes.all():
            raise ValueError(
                f"cluster {sizes.argmin()} is empty (sizes {sizes.tolist()}); use more fine clusters or a larger nredo"
            )
        return partition

    def load(self, arrays: dict[str, np.ndarray]) -> NearestCentroid:
        return NearestCentroid(**arrays)


def _blocks(count: int) -> list[slice]:
    """Split rows into blocks, of which one at a time is copied as float64."""
    return [slice(start, start + ROWS_PER_BLOCK) for start in range(0, count, ROWS_PER_BLOCK)]


def _normalise(features: Float[np.ndarray, "n d"], mean: Float[np.ndarray, " d"]) -> Float64[np.ndarray, "n d"]:
    """Centre rows and scale them to length one; a row at the mean stays zero."""
    centred = features.astype(np.float64) - mean
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)


def _nearest(points: Float[np.ndarray, "n d"], centroids: Float[np.ndarray, "m d"]) -> Int64[np.ndarray, " n"]:
    """Return the index of every point's nearest centroid."""
    # float64 leaves no room for the rounding that differs with the shape of a matrix product.
    centroids = centroids.astype(np.float64)
    return (points.astype(np.float64) @ centroids.T - 0.5 * np.square(centroids).sum(1)).argmax(1)


def _lloyd(points: Float32[np.ndarray, "n d"], k: int, settings: Settings, seed: int) -> Float32[np.ndarray, "{k} d"]:
    """Return the centroids of the best of several runs of Lloyd's algorithm."""
    # faiss trains on at most 256 points per centroid by default, and its sums depend on the threads.
    options = {"max_points_per_centroid": len(points), "min_points_per_centroid": 1}
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        kmeans = faiss.Kmeans(points.shape[1], k, niter=settings.iterations, nredo=settings.nredo, seed=seed, **options)
        kmeans.train(np.ascontiguousarray(points))
    finally:
        faiss.omp_set_num_threads(threads)
    return np.asarray(kmeans.centroids)
