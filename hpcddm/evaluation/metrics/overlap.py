"""Overlap of two sets of points by their nearest neighbours, for precision, recall, density and coverage."""

from dataclasses import dataclass

import numpy as np

from hpcddm.evaluation.metrics.neighbours import blocks, nearest_by_tenth, radii
from hpcddm.evaluation.metrics.tenth_rows import TENTHS, kept_rows

NEIGHBOURS, DENSITY_NEIGHBOURS = 3, 5
"""k of improved precision and recall, and k of density and coverage, as in their papers."""
MOST_NEIGHBOURS = max(NEIGHBOURS, DENSITY_NEIGHBOURS)
TIE = 1e-9
"""Largest relative difference between distances that count as equal, to ignore rounding."""


@dataclass(frozen=True)
class NeighbourhoodOverlap:
    """Overlap of two sets, (11,) each: with all points, then without each tenth of both sets.

    A ball around a point reaches to its k-th nearest other point of the same set. Balls are closed for k = NEIGHBOURS
    and open for k = DENSITY_NEIGHBOURS, as in the authors' code, so that the density of a set in itself is 1.
    """

    precision: np.ndarray
    """Share of fake points in a closed ball of a real one."""
    recall: np.ndarray
    """Share of real points in a closed ball of a fake one."""
    density: np.ndarray
    """Mean number of real points whose open ball holds a fake point, divided by k."""
    coverage: np.ndarray
    """Share of real points whose open ball holds a fake one."""


def overlap(
    real: np.ndarray, fake: np.ndarray, nearest_real: np.ndarray | None = None, nearest_fake: np.ndarray | None = None
) -> NeighbourhoodOverlap:
    """Compute the neighbourhood overlap of real and fake points.

    Args:
        real: (N, D) features.
        fake: (M, D) features.
        nearest_real: (N, 10, 5) distances from `nearest_by_tenth`, if they are known.
        nearest_fake: (M, 10, 5) the same for the fake points.

    Raises:
        ValueError: A set has fewer than 6 points.
    """
    nearest_real, nearest_fake = (
        nearest_by_tenth(points, MOST_NEIGHBOURS) if nearest is None else nearest
        for points, nearest in ((real, nearest_real), (fake, nearest_fake))
    )
    real_closed, real_open = radii(nearest_real, (NEIGHBOURS, DENSITY_NEIGHBOURS)) * [[[1 + TIE]], [[1 - TIE]]]
    fake_closed = radii(nearest_fake, (NEIGHBOURS, DENSITY_NEIGHBOURS))[0] * (1 + TIE)
    real_kept, fake_kept = kept_rows(len(real)), kept_rows(len(fake))
    inside, around = np.zeros(TENTHS + 1), np.zeros(TENTHS + 1)
    reached, holding = np.zeros((2, TENTHS + 1, len(real)), dtype=bool)
    for rows, distances in blocks(fake, real):
        for case in range(TENTHS + 1):
            kept = fake_kept[case, rows]
            inside[case] += (distances <= real_closed[case]).any(1)[kept].sum()
            reached[case] |= (distances <= fake_closed[case, rows, None]).any(0)
            within = (distances < real_open[case]) & kept[:, None]
            around[case] += within.sum()
            holding[case] |= within.any(0)
    reals, fakes = real_kept.sum(1), fake_kept.sum(1)
    return NeighbourhoodOverlap(
        precision=inside / fakes,
        recall=(reached & real_kept).sum(1) / reals,
        density=around / (DENSITY_NEIGHBOURS * fakes),
        coverage=(holding & real_kept).sum(1) / reals,
    )
