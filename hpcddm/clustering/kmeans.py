"""Two-stage k-means: many fine clusters, then K coarse ones from the fine centroids (arXiv 2501.05450, sec. 3.2)."""

import os
import tempfile
from collections.abc import Callable
from typing import IO, Literal

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from hpcddm.clustering.base import FeatureClustering, NotFinite, Workspace
from hpcddm.clustering.centroids import Centroids
from hpcddm.clustering.lloyd import Tally, lloyd, tally
from hpcddm.clustering.nearest_centroid import NearestCentroid, normalise_features
from hpcddm.clustering.row_blocks import map_blocks
from hpcddm.clustering.samples import Samples
from hpcddm.clustering.size_penalties import find_penalties
from hpcddm.config.clustering import Metric, TwoStageSettings
from hpcddm.data.columns import Numbers

ReadFeatures = Callable[[slice], Float[np.ndarray, "n d"]]
"""Reader of some rows of the features."""


class KMeansSettings(TwoStageSettings):
    """Fine clusters, and the assignment of a sample to a coarse cluster.

    `fine_lookup` takes the coarse cluster of the nearest fine centroid (what the code of MoDE does);
    `nearest_coarse` takes the nearest coarse centroid (what the paper's text says).
    """

    assignment: Literal["fine_lookup", "nearest_coarse"] = "fine_lookup"


class KMeans(FeatureClustering[KMeansSettings]):
    """Fine clusters of the features, and coarse clusters of their centroids, each with weight one."""

    def fit(
        self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace
    ) -> NearestCentroid:
        """Cluster the features of some samples: a temporary file holds all of them, memory one block at a time."""
        return self._fit(lambda rows: samples.features(numbers[rows]), len(numbers), num_clusters, seed, workspace)

    def fit_features(self, features: Float[np.ndarray, "n d"], num_clusters: int, seed: int) -> NearestCentroid:
        """Cluster features into `num_clusters` non-empty clusters; the number of threads changes nothing.

        Raises `NotFinite`, and ValueError for features that are fewer than the fine clusters, or leave a cluster empty.
        """
        return self._fit(lambda rows: features[rows], len(features), num_clusters, seed, Workspace())

    def load(self, arrays: dict[str, np.ndarray]) -> NearestCentroid:
        return NearestCentroid(**arrays, metric=self.settings.metric)

    def _fit(
        self, read: ReadFeatures, count: int, num_clusters: int, seed: int, workspace: Workspace
    ) -> NearestCentroid:
        settings = self.settings
        if count < settings.fine_clusters:
            raise ValueError(f"{count} samples are fewer than {settings.fine_clusters} fine clusters")
        # Pages of a mapped file do not count as memory of the process: the system drops them when others need it.
        with tempfile.TemporaryFile(dir=workspace.folder) as file:
            mean, dimensions = _spool(read, count, file)
            squares = _compare(file, (count, dimensions), mean, settings.metric)
            points = np.memmap(file, np.float32, "c", shape=(count, dimensions))
            fine = lloyd(
                points, settings.fine_clusters, settings.iterations, settings.restarts, seed, workspace.advance
            )
            centroids = lloyd(fine, num_clusters, settings.iterations, settings.restarts, seed)
            if settings.assignment == "fine_lookup":
                clusters = Centroids(centroids).nearest(fine)
                partition = NearestCentroid(mean, fine, clusters, metric=settings.metric)
            else:
                partition = NearestCentroid(mean, centroids, np.arange(num_clusters), metric=settings.metric)
            found = tally(points, Centroids(partition.centroids), len(partition.centroids))
            figures = _figures(found, partition.coarse, squares, num_clusters)
            if settings.max_share is not None:
                partition, found = _bounded(partition, centroids, points, found, settings.max_share)
                without = {f"{name}_without_max_share": value for name, value in figures.items()}
                figures = _figures(found, partition.coarse, squares, num_clusters) | without
        partition.figures = figures
        _check_sizes(np.bincount(partition.coarse, found.sizes, num_clusters).astype(np.int64))
        return partition


def _spool(read: ReadFeatures, count: int, file: IO[bytes]) -> tuple[Float64[np.ndarray, " d"], int]:
    """Write all features into a file; return their mean, and their number of dimensions.

    Raises `NotFinite` for the first that has a NaN or infinity.
    """
    sums: list[Float64[np.ndarray, " d"]] = []

    def work(rows: slice) -> tuple[Float32[np.ndarray, "n d"], Float64[np.ndarray, " d"]]:
        block = np.ascontiguousarray(read(rows), dtype=np.float32)
        if not np.isfinite(block).all():
            raise NotFinite(rows.start + int(np.isfinite(block).all(1).argmin()))
        return block, block.sum(0, dtype=np.float64)

    def merge(rows: slice, result: tuple[Float32[np.ndarray, "n d"], Float64[np.ndarray, " d"]]) -> None:
        block, total = result
        file.write(block.data)
        sums[:] = [sums[0] + total] if sums else [total]

    map_blocks(work, count, merge)
    file.flush()
    return sums[0] / count, len(sums[0])


def _compare(file: IO[bytes], shape: tuple[int, int], mean: Float64[np.ndarray, " d"], metric: Metric) -> float:
    """Write features in a file as they are compared, in their places; return the sum of all squared lengths."""
    row_bytes, squares = 4 * shape[1], []

    def work(rows: slice) -> tuple[Float32[np.ndarray, "n d"], float]:
        content = os.pread(file.fileno(), (rows.stop - rows.start) * row_bytes, rows.start * row_bytes)
        points = normalise_features(np.frombuffer(content, np.float32).reshape(-1, shape[1]), mean, metric)
        return points, float(np.square(points, dtype=np.float64).sum())

    def merge(rows: slice, result: tuple[Float32[np.ndarray, "n d"], float]) -> None:
        points, total = result
        file.seek(rows.start * row_bytes)
        file.write(points.data)
        squares.append(total)

    map_blocks(work, shape[0], merge)
    file.flush()
    return sum(squares)


def _bounded(
    free: NearestCentroid,
    coarse: Float32[np.ndarray, "k d"],
    points: Float32[np.ndarray, "n d"],
    found: Tally,
    most: float,
) -> tuple[NearestCentroid, Tally]:
    """Return a partition in which no coarse cluster has more than a share `most` of the points, and its tally.

    Prices on the coarse centroids shift points, or fine clusters as a whole, to the cluster that costs them least.
    free: the partition without that; found: its tally.
    """
    if free.centroids is coarse:
        costs = np.empty((len(points), len(coarse)))
        centroids = Centroids(coarse)

        def merge(rows: slice, block: Float64[np.ndarray, "n k"]) -> None:
            costs[rows] = block

        map_blocks(lambda rows: -2 * centroids.closeness(points[rows]), len(points), merge)
        prices = find_penalties(costs, np.ones(len(points)), most * len(points))
        bounded = NearestCentroid(free.mean, coarse, free.coarse, prices, free.metric)
        return bounded, tally(points, Centroids(coarse, prices), len(coarse))
    costs = -2 * Centroids(coarse).closeness(free.centroids)
    # A fine cluster keeps its coarse cluster as long as that one has no price.
    costs[np.arange(len(costs)), free.coarse] = np.nextafter(costs.min(1), -np.inf)
    weights = found.sizes.astype(np.float64)
    clusters = (costs + find_penalties(costs, weights, most * len(points))).argmin(1)
    return NearestCentroid(free.mean, free.centroids, clusters, metric=free.metric), found


def _figures(found: Tally, coarse: Int64[np.ndarray, " m"], squares: float, num_clusters: int) -> dict[str, float]:
    """Measure the mean squared distance of points from the mean of their cluster, and the largest cluster's share.

    found: the tally of the centroids, to which `merge_fine` gives clusters.
    """
    sizes, sums = np.zeros(num_clusters, np.int64), np.zeros((num_clusters, found.sums.shape[1]))
    np.add.at(sizes, coarse, found.sizes)
    np.add.at(sums, coarse, found.sums)
    around = squares - float((np.square(sums).sum(1) / np.maximum(sizes, 1)).sum())
    return {"inertia": around / int(sizes.sum()), "largest_share": float(sizes.max() / sizes.sum())}


def _check_sizes(sizes: Int64[np.ndarray, " k"]) -> None:
    """Raise ValueError where a cluster is empty."""
    if not sizes.all():
        text = f"cluster {sizes.argmin()} is empty (sizes {sizes.tolist()}); use more fine clusters or more restarts"
        raise ValueError(text)
