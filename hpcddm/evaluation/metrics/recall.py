"""Improved recall: the fraction of real images that the samples reach (Kynkaanniemi et al., arXiv 1904.06991)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.of_neighbours import OfNeighbours
from hpcddm.evaluation.metrics.overlap import NEIGHBOURS, NeighbourhoodOverlap


class Recall(OfNeighbours, Metric):
    """Fraction of real images inside a ball around a sample (eq. 2, k = 3); depends on the numbers of images."""

    title = "recall"
    explanation = (
        "the share of held-out images that are closer to some sample than that sample's k-th nearest neighbour"
        f" among the samples, k = {NEIGHBOURS}"
    )
    order = 50
    is_headline = True

    def read(self, overlap: NeighbourhoodOverlap) -> np.ndarray:
        """Average over the real images."""
        return overlap.recall
