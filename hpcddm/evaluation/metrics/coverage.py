"""Coverage: the fraction of real images with a sample near them (Naeem et al., arXiv 2002.09797)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.of_neighbours import OfNeighbours
from hpcddm.evaluation.metrics.overlap import DENSITY_NEIGHBOURS, NeighbourhoodOverlap


class Coverage(OfNeighbours, Metric):
    """Fraction of balls around real images that contain a sample (eq. 4, k = 5); depends on the numbers of images."""

    title = "coverage"
    explanation = (
        "the share of held-out images with a sample closer than their k-th nearest held-out neighbour,"
        f" k = {DENSITY_NEIGHBOURS}"
    )
    order = 70

    def read(self, overlap: NeighbourhoodOverlap) -> np.ndarray:
        """Average over the real images."""
        return overlap.coverage
