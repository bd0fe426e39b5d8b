"""Exact distances between two sets of features, one block of rows at a time, and neighbourhoods of their points."""

from collections.abc import Iterator

import numpy as np

from hpcddm.evaluation.metrics.tenth_rows import TENTHS, tenth_rows

VALUES_PER_BLOCK = 1 << 22
"""Number of distances in memory at the same time: 32 MiB, independent of the sizes of the sets."""
NEGLIGIBLE = 1e-12
"""Largest squared distance, relative to the squared lengths, that counts as zero."""


class Points:
    """Points to which distances are measured, with values that are computed once.

    Args:
        points: (M, D) points.
    """

    def __init__(self, points: np.ndarray) -> None:
        self._middle = points.mean(0, dtype=np.float64)
        # Distances do not change; |x|^2 + |y|^2 - 2 x y cancels less the nearer the points are to the origin.
        self._points = points.astype(np.float64) - self._middle
        self._lengths = np.square(self._points).sum(1)

    def blocks(self, others: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield squared Euclidean distances from other points, in float64; equal points have distance zero exactly.

        Args:
            others: (N, D) other points.

        Yields:
            A slice of rows of `others`, and their distances (rows, M).
        """
        step = max(1, VALUES_PER_BLOCK // len(self._points))
        for start in range(0, len(others), step):
            rows = slice(start, min(start + step, len(others)))
            block = others[rows].astype(np.float64) - self._middle
            sums = np.square(block).sum(1)[:, None] + self._lengths
            distances = sums - 2 * (block @ self._points.T)
            distances[distances < NEGLIGIBLE * sums] = 0
            yield rows, distances


def blocks(first: np.ndarray, second: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield squared Euclidean distances between all pairs of points, as `Points.blocks` does.

    Args:
        first: (N, D) points.
        second: (M, D) points.

    Yields:
        A slice of rows of `first`, and their distances (rows, M).
    """
    return Points(second).blocks(first)


def nearest_by_tenth(points: np.ndarray, neighbours: int, own_rows: slice = slice(None)) -> np.ndarray:
    """Compute the squared distances of points to their nearest other points in every tenth of the set.

    Args:
        points: (N, D) features.
        neighbours: Number k of neighbours.
        own_rows: The R points whose neighbours are looked for; all by default.

    Returns:
        (R, 10, k) squared distances in no order; infinite where a tenth has fewer than k other points.

    Raises:
        ValueError: There are not more points than neighbours.
    """
    if len(points) <= neighbours:
        raise ValueError(f"{len(points)} samples: the {neighbours}-th neighbour needs {neighbours + 1}")
    own = np.arange(len(points))[own_rows]
    nearest = np.full((len(own), TENTHS, neighbours), np.inf)
    for rows, distances in blocks(points[own_rows], points):
        # A point is not its own neighbour.
        distances[np.arange(len(distances)), own[rows]] = np.inf
        for tenth, columns in enumerate(tenth_rows(len(points))):
            within = distances[:, columns]
            if within.shape[1] > neighbours:
                within = np.partition(within, neighbours - 1, axis=1)[:, :neighbours]
            nearest[rows, tenth, : within.shape[1]] = within
    return nearest


def radii(nearest: np.ndarray, neighbours: tuple[int, ...], kept: np.ndarray) -> np.ndarray:
    """Find the squared distance of points to their k-th nearest other point, without each tenth.

    Args:
        nearest: (R, 10, K) squared distances from `nearest_by_tenth`.
        neighbours: Values of k, at most K.
        kept: (11, R) bool from `kept_rows`, False for the points of the tenth that is left out.

    Returns:
        (len(neighbours), 11, R) squared distances: among all points, then among those outside of each tenth. They are
        infinite where fewer than k points are left, and -1 for the points of the tenth that is left out.
    """
    places = [k - 1 for k in neighbours]
    found = np.empty((len(neighbours), *kept.shape))
    for case, is_kept in enumerate(kept):
        others = nearest if case == 0 else np.delete(nearest, case - 1, axis=1)
        candidates = np.partition(others.reshape(len(nearest), others.shape[1] * others.shape[2]), places, axis=1)
        found[:, case] = np.where(is_kept, candidates[:, places].T, -1)
    return found
