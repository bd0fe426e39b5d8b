"""Lloyd's k-means on all threads; the result does not depend on their number or on the kind of processor.

Each iteration needs 2 N k d FLOPs for the products of points and centroids. The rest of its time goes into the
maximum of every row of products and into the sums.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float32, Float64, Int32, Int64

from hpcddm.clustering.centroids import Centroids
from hpcddm.clustering.row_blocks import map_blocks
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import KMEANS_STARTS


class Tally(NamedTuple):
    """Clusters of points, with the number of points and their sum in each of k clusters."""

    clusters: Int32[np.ndarray, " n"]
    sizes: Int64[np.ndarray, " k"]
    sums: Float64[np.ndarray, "k d"]


def tally(
    points: Float32[np.ndarray, "n d"],
    centroids: Centroids,
    num_clusters: int,
    advance: Callable[[int], None] = lambda more: None,
) -> Tally:
    """Assign all points to their nearest centroids and sum up the points of each cluster.

    Args:
        points: (N, D).
        centroids: K centroids.
        num_clusters: Number K of centroids.
        advance: Called with the number of points of each finished block.

    Returns:
        Cluster of each point, (N,), and size and sum of each cluster, (K,) and (K, D).
    """
    found = Tally(
        np.empty(len(points), np.int32),
        np.zeros(num_clusters, np.int64),
        np.zeros((num_clusters, points.shape[1])),
    )

    def work(rows: slice) -> tuple[Int64[np.ndarray, " n"], Float32[np.ndarray, "k d"]]:
        block = np.ascontiguousarray(points[rows])
        clusters = centroids.nearest(block)
        return clusters, _sums(block, clusters, num_clusters)

    def merge(rows: slice, result: tuple[Int64[np.ndarray, " n"], Float32[np.ndarray, "k d"]]) -> None:
        clusters, sums = result
        found.clusters[rows] = clusters
        np.add(found.sizes, np.bincount(clusters, minlength=num_clusters), out=found.sizes)
        np.add(found.sums, sums, out=found.sums)
        advance(rows.stop - rows.start)

    map_blocks(work, len(points), merge)
    return found


def lloyd(
    points: Float32[np.ndarray, "n d"],
    k: int,
    iterations: int,
    restarts: int,
    seed: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Float32[np.ndarray, "{k} d"]:
    """Run k-means from several random starts and return the centroids of the run with the smallest inertia.

    Args:
        points: (N, D).
        k: Number of clusters.
        iterations: Largest number of iterations of a run.
        restarts: Number of runs.
        seed: Seed of the starting points.
        advance: Called with the number of processed points and the total.

    Returns:
        Centroids, (K, D).

    Examples:
        >>> points = np.array([[0, 0], [0, 2], [9, 9], [9, 7]], np.float32)
        >>> centroids = lloyd(points, k=2, iterations=10, restarts=4, seed=0)
        >>> sorted(centroids.tolist())
        [[0.0, 1.0], [9.0, 8.0]]
    """
    total, done, runs = len(points) * iterations * restarts, 0, []

    def more(count: int) -> None:
        nonlocal done
        done += count
        advance(done, total)

    for redo in range(restarts):
        # A run may have ended before its last iteration.
        done = redo * iterations * len(points)
        starts = keyed.random_subset(seed, KMEANS_STARTS.format(attempt=redo), len(points), k)
        runs.append(iterate(points, points[starts], iterations, more))
    return min(runs, key=lambda run: run[0])[1]


def iterate(
    points: Float32[np.ndarray, "n d"],
    start: Float32[np.ndarray, "k d"],
    iterations: int,
    advance: Callable[[int], None] = lambda more: None,
) -> tuple[float, Float32[np.ndarray, "k d"]]:
    """Iterate from given centroids until no point changes its cluster, or until the last iteration.

    Args:
        points: (N, D).
        start: Initial centroids, (K, D).
        iterations: Largest number of iterations.
        advance: Called with the number of points of each finished block.

    Returns:
        Inertia of the last assignment minus the sum of |p|^2 over all points p, and the centroids, (K, D).
    """
    centroids, before = np.asarray(start, dtype=np.float32), None
    for _ in range(iterations):
        found = tally(points, Centroids(centroids), len(centroids), advance)
        exact = centroids.astype(np.float64)
        inertia = float((found.sizes * np.square(exact).sum(1)).sum() - 2 * (exact * found.sums).sum())
        if before is not None and np.array_equal(found.clusters, before):
            break
        before = found.clusters
        centroids = _means(points, centroids, found)
    return inertia, centroids


def _means(
    points: Float32[np.ndarray, "n d"], centroids: Float32[np.ndarray, "k d"], found: Tally
) -> Float32[np.ndarray, "k d"]:
    """Return the means of the clusters; an empty cluster gets the point that is farthest from its centroid.

    With several empty clusters, the first gets the farthest point. A cluster stays empty if every point equals its
    centroid.
    """
    sizes, sums = found.sizes.copy(), found.sums.copy()
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        for cluster, place in zip(empty, _farthest(points, centroids, found.clusters, len(empty)), strict=False):
            point = points[place].astype(np.float64)
            sums[found.clusters[place]] -= point
            sizes[found.clusters[place]] -= 1
            sums[cluster], sizes[cluster] = point, 1
    filled = sizes > 0
    means = centroids.copy()
    means[filled] = sums[filled] / sizes[filled, None]
    return means


def _farthest(
    points: Float32[np.ndarray, "n d"],
    centroids: Float32[np.ndarray, "k d"],
    clusters: Int32[np.ndarray, " n"],
    count: int,
) -> Int64[np.ndarray, " m"]:
    """List the points that are farthest from their own centroids, at most `count`, the farthest first."""
    distances = np.empty(len(points))

    def work(rows: slice) -> Float64[np.ndarray, " n"]:
        return np.square(points[rows].astype(np.float64) - centroids[clusters[rows]]).sum(1)

    def merge(rows: slice, squares: Float64[np.ndarray, " n"]) -> None:
        distances[rows] = squares

    map_blocks(work, len(points), merge)
    order = np.argsort(-distances, kind="stable")[:count]
    return order[distances[order] > 0]


def _sums(
    block: Float32[np.ndarray, "n d"], clusters: Int64[np.ndarray, " n"], num_clusters: int
) -> Float32[np.ndarray, "k d"]:
    """Sum up the points of every cluster in their order."""
    order = np.argsort(clusters, kind="stable")
    starts = np.searchsorted(clusters[order], np.arange(num_clusters))
    with torch.inference_mode():
        rows, bags = torch.from_numpy(order), torch.from_numpy(starts)
        return F.embedding_bag(rows, torch.from_numpy(block), bags, mode="sum").numpy()
