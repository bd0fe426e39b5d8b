"""Improved recall as ADM's evaluator computes it, with all samples (Dhariwal and Nichol, arXiv 2105.05233)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.need import NEIGHBOUR_IMAGES
from hpcddm.evaluation.metrics.of_neighbours import OfAllNeighbours
from hpcddm.evaluation.metrics.overlap import NEIGHBOURS, NeighbourhoodOverlap


class AdmRecall(OfAllNeighbours, Metric):
    """Fraction of the first 10,000 real images inside a closed ball around one of all samples (k = 3).

    Up to 10,000 images it would equal recall.
    """

    title = "ADM recall"
    explanation = (
        f"the share of the first {NEIGHBOUR_IMAGES:,} held-out images that are closer to some sample than that"
        f" sample's k-th nearest neighbour among all samples, k = {NEIGHBOURS}"
    )
    order = 54

    def read(self, overlap: NeighbourhoodOverlap) -> np.ndarray:
        """Average over the real images."""
        return overlap.adm.recall
