"""Two-stage k-means: many fine clusters, then K coarse ones from the fine centroids (arXiv 2501.05450, sec. 3.2)."""

from typing import Annotated, Any, ClassVar, Literal

import faiss
import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Int64
from pydantic import Field

from hpcddm.clusterings.base import FeatureClustering
from hpcddm.clusterings.partition import FeaturePartition
from hpcddm.clusterings.prices import prices_below
from hpcddm.clusterings.settings import ClusteringSettings
from hpcddm.schema import Positive

ROWS_PER_BLOCK = 4096


class Settings(ClusteringSettings):
    """Fine clusters, Lloyd iterations, restarts, and the assignment of a sample to a coarse cluster.

    `fine_lookup` takes the coarse cluster of the nearest fine centroid (what the code of MoDE does);
    `nearest_coarse` takes the nearest coarse centroid (what the paper's text says). `max_share` is the largest share of
    the samples in a coarse cluster, such as 1.5 / K; without it sizes are as the data have them.
    """

    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"max_share"})

    fine: Positive = 1024
    iterations: Positive = 50
    nredo: Positive = 5
    assignment: Literal["fine_lookup", "nearest_coarse"] = "fine_lookup"
    max_share: Annotated[float, Field(gt=0, le=1)] | None = None

    def check(self, experiment: Any) -> None:
        """Raise ValueError when there are fewer fine clusters than experts, or experts cannot share all samples."""
        if self.fine < experiment.cluster.experts:
            raise ValueError(f"fine {self.fine} is less than experts {experiment.cluster.experts}")
        if self.max_share is not None and self.max_share * experiment.cluster.experts < 1:
            raise ValueError(f"max_share {self.max_share:g}: {experiment.cluster.experts} experts leave samples over")


class NearestCentroid(FeaturePartition):
    """The cluster of the nearest centroid.

    mean: of the training features; centroids: compared after centring and L2-normalising features; coarse: the cluster
    of each centroid; prices: added to the squared distances from the centroids, where sizes are bounded.
    """

    def __init__(
        self,
        mean: Float[np.ndarray, " d"],
        centroids: Float[np.ndarray, "m d"],
        coarse: Int[np.ndarray, " m"],
        prices: Float[np.ndarray, " m"] | None = None,
    ):
        self.mean, self.centroids, self.coarse, self.prices = mean, centroids, coarse, prices

    def assign_features(self, features: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        return self.coarse[self.nearest(features)]

    def nearest(self, features: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        """Return the index of every sample's centroid."""
        nearest = np.empty(len(features), dtype=np.int64)
        for rows in _blocks(len(features)):
            nearest[rows] = _nearest(_normalise(features[rows], self.mean), self.centroids, self.prices)
        return nearest

    def distances_features(self, features: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n k"]:
        """Return the squared distance of samples, as they are compared, from the nearest centroid of every cluster.

        Prices are left out: where sizes are bounded, a sample need not be in the cluster that is nearest.
        """
        num_clusters = int(self.coarse.max()) + 1
        distances = np.full((len(features), num_clusters), np.inf)
        for rows in _blocks(len(features)):
            points = _normalise(features[rows], self.mean)
            closeness = _closeness(points, self.centroids)
            for cluster in np.unique(self.coarse):
                nearest = closeness[:, self.coarse == cluster].max(1)
                distances[rows, cluster] = np.maximum(np.square(points).sum(1) - 2 * nearest, 0)
        return distances

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {"mean": self.mean, "centroids": self.centroids, "coarse": self.coarse}
        return arrays if self.prices is None else arrays | {"prices": self.prices}


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
        if settings.max_share is not None:
            partition = _bounded(partition, coarse, features, settings.max_share)
        sizes = np.bincount(partition.assign_features(features), minlength=num_clusters)
        if not sizes.all():
            raise ValueError(
                f"cluster {sizes.argmin()} is empty (sizes {sizes.tolist()}); use more fine clusters or a larger nredo"
            )
        return partition

    def load(self, arrays: dict[str, np.ndarray]) -> NearestCentroid:
        return NearestCentroid(**arrays)


def _bounded(
    free: NearestCentroid, coarse: Float[np.ndarray, "k d"], features: Float[np.ndarray, "n d"], most: float
) -> NearestCentroid:
    """Return a partition in which no coarse cluster has more than a share `most` of the features.

    Prices on the coarse centroids shift samples, or fine clusters as a whole, to the cluster that costs them least.
    free: the partition without that.
    """
    if free.centroids is coarse:
        points = (_normalise(features[rows], free.mean) for rows in _blocks(len(features)))
        costs = np.concatenate([-2 * _closeness(block, coarse) for block in points])
        found = prices_below(costs, np.ones(len(features)), most * len(features))
        partition = NearestCentroid(free.mean, coarse, free.coarse, found)
    else:
        costs = -2 * _closeness(free.centroids, coarse)
        weights = np.bincount(free.nearest(features), minlength=len(free.centroids)).astype(np.float64)
        clusters = (costs + prices_below(costs, weights, most * len(features))).argmin(1)
        partition = NearestCentroid(free.mean, free.centroids, clusters)
    before, after = (_measured(features, kept, len(coarse)) for kept in (free, partition))
    partition.figures = after | {f"{name} without max_share": value for name, value in before.items()}
    return partition


def _measured(features: Float[np.ndarray, "n d"], partition: NearestCentroid, num_clusters: int) -> dict[str, float]:
    """Measure the mean squared distance of samples from the mean of their cluster, and the largest cluster's share."""
    clusters, squares = partition.assign_features(features), 0.0
    sums = np.zeros((num_clusters, features.shape[1]))
    for rows in _blocks(len(features)):
        points = _normalise(features[rows], partition.mean)
        squares += float(np.square(points).sum())
        np.add.at(sums, clusters[rows], points)
    sizes = np.bincount(clusters, minlength=num_clusters)
    around = squares - float((np.square(sums).sum(1) / np.maximum(sizes, 1)).sum())
    return {"inertia": around / len(features), "largest share": float(sizes.max() / len(features))}


def _blocks(count: int) -> list[slice]:
    """Split rows into blocks, of which one at a time is copied as float64."""
    return [slice(start, start + ROWS_PER_BLOCK) for start in range(0, count, ROWS_PER_BLOCK)]


def _normalise(features: Float[np.ndarray, "n d"], mean: Float[np.ndarray, " d"]) -> Float64[np.ndarray, "n d"]:
    """Centre rows and scale them to length one; a row at the mean stays zero."""
    centred = features.astype(np.float64) - mean
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)


def _nearest(
    points: Float[np.ndarray, "n d"],
    centroids: Float[np.ndarray, "m d"],
    prices: Float[np.ndarray, " m"] | None = None,
) -> Int64[np.ndarray, " n"]:
    """Return the index of every point's nearest centroid, by squared distance plus price where there are prices."""
    closeness = _closeness(points, centroids)
    return (closeness if prices is None else closeness - 0.5 * prices).argmax(1)


def _closeness(points: Float[np.ndarray, "n d"], centroids: Float[np.ndarray, "m d"]) -> Float64[np.ndarray, "n m"]:
    """Return half of what every squared distance is less than the point's squared length."""
    # float64 leaves no room for the rounding that differs with the shape of a matrix product.
    centroids = centroids.astype(np.float64)
    return points.astype(np.float64) @ centroids.T - 0.5 * np.square(centroids).sum(1)


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
