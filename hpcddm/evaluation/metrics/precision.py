"""Improved precision: the fraction of samples that look real (Kynkaanniemi et al., arXiv 1904.06991)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.of_neighbours import OfNeighbours
from hpcddm.evaluation.metrics.overlap import NEIGHBOURS, NeighbourhoodOverlap


class Precision(OfNeighbours, Metric):
    """Fraction of samples inside a ball around a real image (eq. 1, k = 3); depends on the numbers of images."""

    title = "precision"
    explanation = (
        "the share of samples that are closer to some held-out image than that image's k-th nearest"
        f" held-out neighbour, k = {NEIGHBOURS}"
    )
    order = 40

    def read(self, overlap: NeighbourhoodOverlap) -> np.ndarray:
        """Average over the samples."""
        return overlap.precision
