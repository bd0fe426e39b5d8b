"""Density: the number of real images whose neighbourhood contains a sample (Naeem et al., arXiv 2002.09797)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.of_neighbours import OfNeighbours
from hpcddm.evaluation.metrics.overlap import DENSITY_NEIGHBOURS, NeighbourhoodOverlap


class Density(OfNeighbours, Metric):
    """Mean number of balls around real images that contain a sample, divided by k = 5 (eq. 3); it may exceed 1."""

    title = "density"
    explanation = (
        "how many held-out images are closer to a sample than to their k-th nearest held-out neighbour, divided by k ="
        f" {DENSITY_NEIGHBOURS}: 1 for real images"
    )
    format = ".2f"
    order = 60

    def read(self, overlap: NeighbourhoodOverlap) -> np.ndarray:
        """Average over the samples."""
        return overlap.density
