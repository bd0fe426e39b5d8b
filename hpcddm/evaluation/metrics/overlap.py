"""Overlap of two sets of points by their nearest neighbours, for precision, recall, density and coverage.

The balls around the points of a range need no other range, so that several units share the work on large sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from hpcddm.evaluation.metrics.need import NEIGHBOUR_IMAGES
from hpcddm.evaluation.metrics.neighbours import blocks, nearest_by_tenth, radii
from hpcddm.evaluation.metrics.tenth_rows import TENTHS, kept_rows

NEIGHBOURS, DENSITY_NEIGHBOURS = 3, 5
"""k of improved precision and recall, and k of density and coverage, as in their papers."""
MOST_NEIGHBOURS = max(NEIGHBOURS, DENSITY_NEIGHBOURS)
TIE = 1e-9
"""Largest relative difference between distances that count as equal, to ignore rounding."""


@dataclass(frozen=True)
class Radii:
    """Squared radii of the balls around N points, (11, N) each: among all points, then without each tenth of the set.

    A ball around a point reaches to its k-th nearest other point of the same set. Balls are closed for k = NEIGHBOURS
    and open for k = DENSITY_NEIGHBOURS, as in the authors' code, so that the density of a set in itself is 1.
    """

    closed: np.ndarray
    open: np.ndarray

    @classmethod
    def around(cls, points: np.ndarray, rows: slice = slice(None)) -> "Radii":
        """Find the radii of some rows of points (N, D).

        Raises:
            ValueError: There are fewer than 6 points.
        """
        nearest = nearest_by_tenth(points, MOST_NEIGHBOURS, rows)
        closed, open_ones = radii(nearest, (NEIGHBOURS, DENSITY_NEIGHBOURS), kept_rows(len(points))[:, rows])
        return cls(closed * (1 + TIE), open_ones * (1 - TIE))


@dataclass(frozen=True)
class PrecisionRecall:
    """Shares of points in the balls of another set, (11,) each: with all points, then without each tenth of both."""

    precision: np.ndarray
    """Share of fake points in a closed ball of a real one."""
    recall: np.ndarray
    """Share of real points in a closed ball of a fake one."""


@dataclass(frozen=True)
class NeighbourhoodOverlap(PrecisionRecall):
    """Overlap of two sets, (11,) each."""

    density: np.ndarray
    """Mean number of real points whose open ball holds a fake point, divided by k."""
    coverage: np.ndarray
    """Share of real points whose open ball holds a fake one."""
    adm: PrecisionRecall
    """Precision and recall with the first 10,000 real points alone."""


@dataclass(frozen=True)
class OverlapPart:
    """Points that are held by the balls around a range of real points and around the same range of fake points.

    The first axis of every array is that of the 11 cases: with all points, then without each tenth.
    """

    inside: np.ndarray
    """(11, M) bool, fake points in a closed ball of a real point of the range."""
    inside_adm: np.ndarray
    """(11, M) bool, the same if there were the first 10,000 real points alone."""
    pairs: np.ndarray
    """(11,) number of fake points in the open ball of each real point of the range, summed."""
    holding: np.ndarray
    """(11,) number of real points of the range whose open ball holds a fake point."""
    reached: np.ndarray
    """(11, N) bool, real points in a closed ball of a fake point of the range."""


@dataclass(frozen=True)
class RealBalls:
    """Balls around a range of real points, which serve for the samples of every arm.

    Args:
        points: (N, D) all real points.
        rows: The range.
        radii: Radii of the balls around the range.
        adm_radii: Radii around those of the range among the first 10,000 points, if there were no others.
    """

    points: np.ndarray
    rows: slice
    radii: Radii
    adm_radii: Radii

    @classmethod
    def around(cls, points: np.ndarray, rows: slice = slice(None)) -> "RealBalls":
        """Find the radii of a range of real points."""
        own = Radii.around(points, rows)
        if len(points) <= NEIGHBOUR_IMAGES:
            return cls(points, rows, own, own)
        return cls(points, rows, own, Radii.around(points[:NEIGHBOUR_IMAGES], rows))

    def overlap(self, fake: np.ndarray) -> OverlapPart:
        """Find what the balls around the range of real points and around that of fake points (M, D) hold."""
        own = self.points[self.rows]
        inside = _held_by_closed(own, self.radii, fake)
        few = self.points[:NEIGHBOUR_IMAGES][self.rows]
        inside_adm = inside if self.adm_radii is self.radii else _held_by_closed(few, self.adm_radii, fake)
        reached = _held_by_closed(fake[self.rows], Radii.around(fake, self.rows), self.points)
        return OverlapPart(inside, inside_adm, *_held_by_open(own, self.radii, fake), reached)


def union(parts: Sequence[OverlapPart]) -> OverlapPart:
    """Return what the balls of several ranges hold."""
    inside, inside_adm, reached = (
        reduce(np.logical_or, (getattr(part, name) for part in parts)) for name in ("inside", "inside_adm", "reached")
    )
    pairs, holding = (sum(getattr(part, name) for part in parts) for name in ("pairs", "holding"))
    return OverlapPart(inside, inside_adm, pairs, holding, reached)


def merge(parts: Sequence[OverlapPart]) -> NeighbourhoodOverlap:
    """Compute the overlap from the parts of all ranges."""
    whole = union(parts)
    inside, inside_adm, reached = whole.inside, whole.inside_adm, whole.reached
    fakes, reals = kept_rows(inside.shape[1]), kept_rows(reached.shape[1])
    few_reached = reached[:, :NEIGHBOUR_IMAGES]
    return NeighbourhoodOverlap(
        precision=_share(inside, fakes),
        recall=_share(reached, reals),
        density=whole.pairs / (DENSITY_NEIGHBOURS * fakes.sum(1)),
        coverage=whole.holding / reals.sum(1),
        adm=PrecisionRecall(_share(inside_adm, fakes), _share(few_reached, kept_rows(few_reached.shape[1]))),
    )


def overlap(real: np.ndarray, fake: np.ndarray) -> NeighbourhoodOverlap:
    """Compute the neighbourhood overlap of real points (N, D) and fake points (M, D).

    Raises:
        ValueError: A set has fewer than 6 points.
    """
    return merge([RealBalls.around(real).overlap(fake)])


def _share(found: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Compute the share of kept points, (11,), that are found; both arrays are (11, N) bool."""
    return (found & kept).sum(1) / kept.sum(1)


def _held_by_closed(points: np.ndarray, around: Radii, others: np.ndarray) -> np.ndarray:
    """Find which other points are in a closed ball around one of some points, (11, M) bool."""
    held = np.zeros((TENTHS + 1, len(others)), dtype=bool)
    if len(points):
        for rows, distances in blocks(others, points):
            for case, squares in enumerate(around.closed):
                held[case, rows] = (distances <= squares).any(1)
    return held


def _held_by_open(points: np.ndarray, around: Radii, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count pairs of a ball and another point that it holds, and balls that hold any, (11,) each."""
    kept, pairs = kept_rows(len(others)), np.zeros(TENTHS + 1)
    holding = np.zeros((TENTHS + 1, len(points)), dtype=bool)
    for rows, distances in blocks(others, points):
        for case, squares in enumerate(around.open):
            within = (distances < squares) & kept[case, rows, None]
            pairs[case] += within.sum()
            holding[case] |= within.any(0)
    return pairs, holding.sum(1)
