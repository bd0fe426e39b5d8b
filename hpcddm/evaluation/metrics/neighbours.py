"""Exact distances between two sets of features, a block of rows at a time, and which points lie near each other."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

VALUES_PER_BLOCK = 1 << 22
"""Number of distances held at once: 32 MiB, independent of the sizes of the sets."""
NOTHING = 1e-12
"""Share of the squared lengths below which a squared distance is the rounding of zero."""
NEIGHBOURS, DENSITY_NEIGHBOURS = 3, 5
"""k of improved precision and recall, and of density and coverage: the values of their papers."""
TIE = 1e-9
"""Relative difference below which distances are equal, so that rounding does not matter."""


class Points:
    """Points to which distances are measured, with what these need of them alone, computed once: (M, D)."""

    def __init__(self, points: np.ndarray) -> None:
        self._middle = points.mean(0, dtype=np.float64)
        # Distances do not change; |x|^2 + |y|^2 - 2 x y cancels less the nearer the points are to the origin.
        self._points = points.astype(np.float64) - self._middle
        self._lengths = np.square(self._points).sum(1)

    def blocks(self, others: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield squared Euclidean distances from others, (N, D), in float64: rows of these as a slice, and (rows, M).

        Equal points are at distance zero exactly.
        """
        others = others.astype(np.float64) - self._middle
        step = max(1, VALUES_PER_BLOCK // len(self._points))
        for start in range(0, len(others), step):
            rows = slice(start, min(start + step, len(others)))
            block = others[rows]
            sums = np.square(block).sum(1)[:, None] + self._lengths
            distances = sums - 2 * (block @ self._points.T)
            distances[distances < NOTHING * sums] = 0
            yield rows, distances


def blocks(first: np.ndarray, second: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield squared Euclidean distances of all pairs of (N, D) and (M, D), as `Points.blocks`: rows of `first`."""
    return Points(second).blocks(first)


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


@dataclass(frozen=True)
class Overlap:
    """Real and fake points, N and M of them, that lie in balls around points of the other set.

    A ball around a point reaches to its k-th nearest other point of the same set: closed balls, with their surface,
    for k = NEIGHBOURS; open ones for k = DENSITY_NEIGHBOURS, as the authors' code has it, so that the density of a set
    in itself is 1.
    """

    fake_in_real: np.ndarray
    """Whether a fake point is in a closed ball of a real one: (M,) bool."""
    real_in_fake: np.ndarray
    """Whether a real point is in a closed ball of a fake one: (N,) bool."""
    balls_around_fake: np.ndarray
    """Number of real points whose open ball holds a fake point: (M,) int."""
    real_holds_fake: np.ndarray
    """Whether the open ball of a real point holds a fake one: (N,) bool."""


def overlap(real: np.ndarray, fake: np.ndarray) -> Overlap:
    """Find the overlap of real (N, D) and fake (M, D); raises ValueError with fewer than 6 points of either."""
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
    return Overlap(fake_in_real, real_in_fake, balls_around_fake, real_holds_fake)
