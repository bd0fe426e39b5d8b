"""Exact distances between two sets of features, a block of rows at a time, and from a point to its k-th neighbour."""

from collections.abc import Iterator

import numpy as np

VALUES_PER_BLOCK = 1 << 22
"""Number of distances held at once: 32 MiB, independent of the sizes of the sets."""
NOTHING = 1e-12
"""Share of the squared lengths below which a squared distance is the rounding of zero."""


def blocks(first: np.ndarray, second: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield squared Euclidean distances of all pairs, in float64: rows of `first` as a slice, their block (rows, M).

    first: (N, D); second: (M, D). Equal points are at distance zero exactly.
    """
    middle = second.mean(0, dtype=np.float64)
    # Distances do not change; |x|^2 + |y|^2 - 2 x y cancels less the nearer the points are to the origin.
    first, second = first.astype(np.float64) - middle, second.astype(np.float64) - middle
    lengths = np.square(second).sum(1)
    step = max(1, VALUES_PER_BLOCK // len(second))
    for start in range(0, len(first), step):
        rows = slice(start, min(start + step, len(first)))
        block = first[rows]
        sums = np.square(block).sum(1)[:, None] + lengths
        distances = sums - 2 * (block @ second.T)
        distances[distances < NOTHING * sums] = 0
        yield rows, distances


def radii(points: np.ndarray, neighbours: tuple[int, ...]) -> np.ndarray:
    """Compute the squared distance of every point to its k-th nearest other point for each k: (len(neighbours), N).

    Raises ValueError when there are not more points than neighbours.
    """
    if len(points) <= max(neighbours):
        raise ValueError(f"{len(points)} samples: the {max(neighbours)}-th neighbour needs {max(neighbours) + 1}")
    squared_radii = np.empty((len(neighbours), len(points)))
    for rows, distances in blocks(points, points):
        # A point is its own neighbour; with it out of the way, the k-th one stands at place k - 1.
        distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = np.inf
        places = [k - 1 for k in neighbours]
        squared_radii[:, rows] = np.partition(distances, places, axis=1)[:, places].T
    return squared_radii
