"""Precision, recall, density and coverage of samples, by nearest neighbours."""

import numpy as np

from hpcddm.metrics.neighbours import blocks, radii

NEIGHBOURS, DENSITY_NEIGHBOURS = 3, 5
"""k of improved precision and recall, and of density and coverage: the values of their papers."""
TIE = 1e-9
"""Relative difference below which distances are equal, so that rounding does not matter."""


def precision_recall(real: np.ndarray, fake: np.ndarray) -> dict[str, float]:
    """Compute precision, recall, density and coverage of samples against real features.

    A ball around every point reaches to its k-th nearest other point of the same set. precision: the share of fake
    points in some ball of a real one; recall: the share of real points in some ball of a fake one (Kynkaanniemi et
    al., arXiv 1904.06991, eq. 1 and 2; k = 3, the surface belongs to the ball). density: the mean
    number of real balls around a fake point, divided by k, which may exceed 1; coverage: the share of real balls that
    hold a fake point (Naeem et al., arXiv 2002.09797, eq. 3 and 4; k = 5, without the surface, as the authors' code has
    it, so that the density of a set in itself is 1). All depend on the numbers of samples: compare at equal numbers.

    real: (N, D); fake: (M, D). Raises ValueError with fewer than 6 samples of either.
    """
    real_closed, real_open = radii(real, (NEIGHBOURS, DENSITY_NEIGHBOURS)) * [[1 + TIE], [1 - TIE]]
    fake_closed = radii(fake, (NEIGHBOURS, DENSITY_NEIGHBOURS))[0] * (1 + TIE)
    precise, balls = np.zeros(len(fake), dtype=bool), 0
    recalled, covered = np.zeros(len(real), dtype=bool), np.zeros(len(real), dtype=bool)
    for rows, distances in blocks(fake, real):
        precise[rows] = (distances <= real_closed).any(1)
        recalled |= (distances <= fake_closed[rows, None]).any(0)
        within = distances < real_open
        balls += int(within.sum())
        covered |= within.any(0)
    return {
        "precision": float(precise.mean()),
        "recall": float(recalled.mean()),
        "density": balls / (DENSITY_NEIGHBOURS * len(fake)),
        "coverage": float(covered.mean()),
    }
