"""Partition by nearest centroids of features, and the form in which features are compared."""

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Int64

from hpcddm.clustering.blocks import blocks, in_blocks
from hpcddm.clustering.centroids import Centroids
from hpcddm.clustering.partition import FeaturePartition, require_clusters
from hpcddm.config.clustering import Metric


class NearestCentroid(FeaturePartition):
    """The cluster of the nearest centroid.

    mean: of the training features; centroids: of features as they are compared; coarse: the cluster of each centroid;
    prices: added to the squared distances from the centroids, where sizes are bounded.
    """

    def __init__(
        self,
        mean: Float[np.ndarray, " d"],
        centroids: Float[np.ndarray, "m d"],
        coarse: Int[np.ndarray, " m"],
        prices: Float[np.ndarray, " m"] | None = None,
        metric: Metric = "cosine",
    ) -> None:
        self.mean, self.centroids, self.coarse, self.prices, self.metric = mean, centroids, coarse, prices, metric

    def require(self, num_clusters: int, dimensions: int) -> None:
        require_clusters(self.coarse, num_clusters)
        count = len(self.coarse)
        prices = np.zeros(count) if self.prices is None else self.prices
        shapes = (self.mean.shape, self.centroids.shape, prices.shape)
        if shapes != ((dimensions,), (count, dimensions), (count,)):
            raise ValueError(f"mean, centroids, prices are {shapes}, of {count} centroids in {dimensions} dimensions")

    def assign_features(self, features: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        return self.coarse[self.nearest(features)]

    def nearest(self, features: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        """Return the index of every sample's centroid."""
        nearest, centroids = np.empty(len(features), dtype=np.int64), Centroids(self.centroids, self.prices)

        def work(rows: slice) -> Int64[np.ndarray, " n"]:
            return centroids.nearest(compared(features[rows], self.mean, self.metric))

        in_blocks(work, len(features), nearest.__setitem__)
        return nearest

    def distances_features(self, features: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n k"]:
        """Return the squared distance of samples, as they are compared, from the nearest centroid of every cluster.

        Prices are left out: where sizes are bounded, a sample need not be in the cluster that is nearest.
        """
        distances = np.full((len(features), int(self.coarse.max()) + 1), np.inf)
        centroids = Centroids(self.centroids)
        for rows in blocks(len(features)):
            points = compared(features[rows], self.mean, self.metric)
            closeness, squares = centroids.closeness(points), np.square(points, dtype=np.float64).sum(1)
            for cluster in np.unique(self.coarse):
                nearest = closeness[:, self.coarse == cluster].max(1)
                distances[rows, cluster] = np.maximum(squares - 2 * nearest, 0)
        return distances

    @property
    def points_text(self) -> str:
        return "features, centred and scaled to length one" if self.metric == "cosine" else "features"

    def points(self, features: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
        return compared(features, self.mean, self.metric).astype(np.float64)

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {"mean": self.mean, "centroids": self.centroids, "coarse": self.coarse}
        return arrays if self.prices is None else arrays | {"prices": self.prices}


def compared(
    features: Float[np.ndarray, "n d"], mean: Float[np.ndarray, " d"], metric: Metric
) -> Float32[np.ndarray, "n d"]:
    """Centre rows and, for the cosine, scale them to length one; a row at the mean stays zero."""
    centred = features.astype(np.float64) - mean
    if metric == "cosine":
        centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    return centred.astype(np.float32)
