"""Exact distances between two sets of features, one block of rows at a time, and neighbourhoods of their points."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

VALUES_PER_BLOCK = 1 << 22
"""Number of distances in memory at the same time: 32 MiB, independent of the sizes of the sets."""
NEGLIGIBLE = 1e-12
"""Largest squared distance, relative to the squared lengths, that counts as zero."""
NEIGHBOURS, DENSITY_NEIGHBOURS = 3, 5
"""k of improved precision and recall, and k of density and coverage, as in their papers."""
TIE = 1e-9
"""Largest relative difference between distances that count as equal, to ignore rounding."""


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
        others = others.astype(np.float64) - self._middle
        step = max(1, VALUES_PER_BLOCK // len(self._points))
        for start in range(0, len(others), step):
            rows = slice(start, min(start + step, len(others)))
            block = others[rows]
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


def radii(points: np.ndarray, neighbours: tuple[int, ...]) -> np.ndarray:
    """Compute the squared distance of every point to its k-th nearest other point.

    Args:
        points: (N, D) points.
        neighbours: Values of k.

    Returns:
        (len(neighbours), N) squared distances.

    Raises:
        ValueError: There are not more points than neighbours.
    """
    if len(points) <= max(neighbours):
        raise ValueError(f"{len(points)} samples: the {max(neighbours)}-th neighbour needs {max(neighbours) + 1}")
    squared_radii = np.empty((len(neighbours), len(points)))
    for rows, distances in blocks(points, points):
        # A point is its own neighbour; without it the k-th neighbour has index k - 1.
        distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = np.inf
        places = [k - 1 for k in neighbours]
        squared_radii[:, rows] = np.partition(distances, places, axis=1)[:, places].T
    return squared_radii


@dataclass(frozen=True)
class NeighbourhoodOverlap:
    """Real points (N) and fake points (M) that are in balls around points of the other set.

    A ball around a point reaches to its k-th nearest other point of the same set. Balls are closed for k = NEIGHBOURS
    and open for k = DENSITY_NEIGHBOURS, as in the authors' code, so that the density of a set in itself is 1.
    """

    fake_in_real: np.ndarray
    """True for a fake point in a closed ball of a real one: (M,) bool."""
    real_in_fake: np.ndarray
    """True for a real point in a closed ball of a fake one: (N,) bool."""
    balls_around_fake: np.ndarray
    """Number of real points whose open ball holds a fake point: (M,) int."""
    real_holds_fake: np.ndarray
    """True for a real point whose open ball holds a fake one: (N,) bool."""


def overlap(real: np.ndarray, fake: np.ndarray) -> NeighbourhoodOverlap:
    """Compute the neighbourhood overlap of real and fake points.

    Args:
        real: (N, D) features.
        fake: (M, D) features.

    Raises:
        ValueError: A set has fewer than 6 points.
    """
    real_closed, real_open = radii(real, (NEIGHBOURS, DENSITY_NEIGHBOURS)) * [[1 + TIE], [1 - TIE]]
    fake_closed = radii(fake, (NEIGHBOURS, DENSITY_NEIGHBOURS))[0] * (1 + TIE)
    fake_in_real, balls_around_fake = np.zeros(len(fake), dtype=bool), np.zeros(len(fake), dtype=int)
    real_in_fake, real_holds_fake = np.zeros(len(real), dtype=bool), np.zeros(len(real), dtype=bool)
    for rows, distances in blocks(fake, real):
        fake_in_real[rows] = (distances <= real_closed).any(1)
        real_in_fake |= (distances <= fake_closed[rows, None]).any(0)
        within = distances < real_open
        balls_around_fake[rows] = within.sum(1)
        real_holds_fake |= within.any(0)
    return NeighbourhoodOverlap(fake_in_real, real_in_fake, balls_around_fake, real_holds_fake)
