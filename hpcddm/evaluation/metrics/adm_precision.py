"""Improved precision as ADM's evaluator computes it, with all samples (Dhariwal and Nichol, arXiv 2105.05233)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.need import NEIGHBOUR_IMAGES
from hpcddm.evaluation.metrics.of_neighbours import OfAllNeighbours
from hpcddm.evaluation.metrics.overlap import NEIGHBOURS, NeighbourhoodOverlap


class AdmPrecision(OfAllNeighbours, Metric):
    """Fraction of all samples inside a closed ball around one of the first 10,000 real images (k = 3).

    Up to 10,000 images it would equal precision.
    """

    title = "ADM precision"
    explanation = (
        f"the share of all samples that are closer to one of the first {NEIGHBOUR_IMAGES:,} held-out images than"
        f" that image's k-th nearest neighbour among these, k = {NEIGHBOURS}"
    )
    order = 52

    def read(self, overlap: NeighbourhoodOverlap) -> np.ndarray:
        """Average over the samples."""
        return overlap.adm.precision
