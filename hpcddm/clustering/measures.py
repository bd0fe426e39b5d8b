"""Measures of a partition: how even, how separate, and how close to the classes its clusters are."""

import numpy as np
from jaxtyping import Float, Float64, Int64, Integer

ROWS_PER_BLOCK = 256
"""Rows of a matrix of distances that are in memory together."""


def entropy(counts: Integer[np.ndarray, " n"] | Float[np.ndarray, " n"]) -> float:
    """Return the entropy of the shares in nats (Shannon 1948)."""
    shares = counts[counts > 0] / counts.sum()
    return max(0.0, float(-(shares * np.log(shares)).sum()))


def effective_number(counts: Integer[np.ndarray, " n"]) -> float:
    """Return the number of equal shares that have the same entropy: exp of it (Hill 1973, the number of order one)."""
    return float(np.exp(entropy(counts)))


def normalised_information(table: Integer[np.ndarray, "k c"]) -> float:
    """Return the normalised mutual information of clusters and classes, in [0, 1].

    That is 2 I / (H(cluster) + H(class)) (Danon et al., Comparing community structure identification, 2005).
    table: numbers of samples. One cluster of one class is 1, as in scikit-learn.
    """
    of_clusters, of_classes = entropy(table.sum(1)), entropy(table.sum(0))
    if of_clusters + of_classes == 0:
        return 1.0
    shared = of_clusters + of_classes - entropy(table.ravel())
    return min(max(2 * shared / (of_clusters + of_classes), 0.0), 1.0)


def silhouettes(
    points: Float[np.ndarray, "n d"], clusters: Int64[np.ndarray, " n"], num_clusters: int
) -> tuple[Float64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Return the silhouette of every point, in [-1, 1], and its neighbour: the nearest cluster but its own.

    With a the mean Euclidean distance from the other points of its cluster, and b that from the points of the
    neighbour, it is (b - a) / max(a, b), and 0 for a point that is alone (Rousseeuw, Silhouettes, J. Comput. Appl.
    Math. 20, 1987). Raises ValueError where fewer than two clusters have points.
    """
    sizes = np.bincount(clusters, minlength=num_clusters)
    if np.count_nonzero(sizes) < 2:
        raise ValueError("a silhouette needs points of two clusters")
    members = np.eye(num_clusters)[clusters]
    squares = np.square(points).sum(1)
    values, neighbours = np.empty(len(points)), np.empty(len(points), dtype=np.int64)
    for start in range(0, len(points), ROWS_PER_BLOCK):
        own = np.arange(start, min(start + ROWS_PER_BLOCK, len(points)))
        distances = np.sqrt(np.maximum(squares[own, None] + squares - 2 * points[own] @ points.T, 0))
        distances[own - start, own] = 0
        sums, cluster = distances @ members, clusters[own]
        inside = sums[own - start, cluster] / np.maximum(sizes[cluster] - 1, 1)
        means = np.divide(sums, sizes, out=np.full_like(sums, np.inf), where=sizes > 0)
        means[own - start, cluster] = np.inf
        neighbours[own] = means.argmin(1)
        outside = means.min(1)
        larger = np.maximum(inside, outside)
        silhouette = np.divide(outside - inside, larger, out=np.zeros(len(own)), where=larger > 0)
        values[own] = np.where(sizes[cluster] == 1, 0, silhouette)
    return values, neighbours
