"""Partition by nearest centroid, and the normalisation of features before they are compared."""

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Int64

from hpcddm.clustering.centroids import Centroids
from hpcddm.clustering.partition import FeaturePartition, require_every_cluster
from hpcddm.clustering.row_blocks import map_blocks, split_rows
from hpcddm.config.clustering import Metric


class NearestCentroid(FeaturePartition):
    """Partition that assigns a sample to the cluster of the nearest centroid.

    Args:
        mean: Mean of the training features, (D,).
        centroids: Centroids of normalised features, (M, D).
        coarse: Cluster of each centroid, (M,).
        penalties: Penalty added to the squared distances from each centroid, (M,); None for clusters of unbounded size.
        metric: 'cosine' or 'euclidean', as in `normalise_features`.

    Examples:
        >>> partition = NearestCentroid(np.zeros(2), centroids=np.eye(2), coarse=np.array([0, 1]))
        >>> partition.assign_features(np.array([[3.0, 1.0], [0.5, 2.0]]))
        array([0, 1])
    """

    def __init__(
        self,
        mean: Float[np.ndarray, " d"],
        centroids: Float[np.ndarray, "m d"],
        coarse: Int[np.ndarray, " m"],
        penalties: Float[np.ndarray, " m"] | None = None,
        metric: Metric = "cosine",
    ) -> None:
        self.mean, self.centroids, self.coarse, self.penalties, self.metric = mean, centroids, coarse, penalties, metric

    def require(self, num_clusters: int, dimensions: int) -> None:
        """Raise ValueError if the arrays do not match the numbers of clusters and dimensions, or are not finite."""
        require_every_cluster(self.coarse, num_clusters)
        count = len(self.coarse)
        prices = np.zeros(count) if self.penalties is None else self.penalties
        shapes = (self.mean.shape, self.centroids.shape, prices.shape)
        if shapes != ((dimensions,), (count, dimensions), (count,)):
            raise ValueError(f"mean, centroids, prices are {shapes}, of {count} centroids in {dimensions} dimensions")
        kinds = [str(values.dtype) for values in (self.mean, self.centroids, prices)]
        if not all(kind.startswith("float") for kind in kinds):
            raise ValueError(f"mean, centroids, prices are {', '.join(kinds)}, not floating-point numbers")
        # Distances are compared in float32 first.
        squares = [np.einsum("...d,...d->...", values, values, dtype=float) for values in (self.mean, self.centroids)]
        with np.errstate(over="ignore"):
            if not all(np.isfinite(values.astype(np.float32)).all() for values in (*squares, prices)):
                raise ValueError("mean, centroids or prices are not finite, or too large")

    def assign_features(self, features: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        """Return the cluster of the nearest centroid of each sample, (N,)."""
        return self.coarse[self.nearest(features)]

    def nearest(self, features: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        """Return the nearest centroid of every sample.

        Args:
            features: (N, D).

        Returns:
            Index of a centroid for each sample, (N,).
        """
        nearest, centroids = np.empty(len(features), dtype=np.int64), Centroids(self.centroids, self.penalties)

        def work(rows: slice) -> Int64[np.ndarray, " n"]:
            return centroids.nearest(normalise_features(features[rows], self.mean, self.metric))

        map_blocks(work, len(features), nearest.__setitem__)
        return nearest

    def distances_features(self, features: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n k"]:
        """Return the squared distances of normalised features from the nearest centroid of every cluster, (N, K).

        Penalties are not included: with bounded sizes, a sample may belong to a cluster that is not the nearest.
        """
        distances = np.full((len(features), int(self.coarse.max()) + 1), np.inf)
        centroids = Centroids(self.centroids)
        for rows in split_rows(len(features)):
            points = normalise_features(features[rows], self.mean, self.metric)
            closeness, squares = centroids.closeness(points), np.square(points, dtype=np.float64).sum(1)
            for cluster in np.unique(self.coarse):
                nearest = closeness[:, self.coarse == cluster].max(1)
                distances[rows, cluster] = np.maximum(squares - 2 * nearest, 0)
        return distances

    @property
    def describe_points(self) -> str:
        """Description of the points that `points` returns."""
        return "features, centred and scaled to length one" if self.metric == "cosine" else "features"

    def points(self, features: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
        """Return the normalised features, (N, D)."""
        return normalise_features(features, self.mean, self.metric).astype(np.float64)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return mean, centroids, their clusters, and the penalties if there are any."""
        arrays = {"mean": self.mean, "centroids": self.centroids, "coarse": self.coarse}
        return arrays if self.penalties is None else arrays | {"penalties": self.penalties}


def normalise_features(
    features: Float[np.ndarray, "n d"], mean: Float[np.ndarray, " d"], metric: Metric
) -> Float32[np.ndarray, "n d"]:
    """Subtract the mean and, for the cosine, scale rows to length one; a row equal to the mean becomes zero.

    Args:
        features: (N, D).
        mean: (D,).
        metric: 'cosine' or 'euclidean'.

    Returns:
        Normalised features, (N, D).
    """
    centred = features.astype(np.float64) - mean
    if metric == "cosine":
        centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    return centred.astype(np.float32)
