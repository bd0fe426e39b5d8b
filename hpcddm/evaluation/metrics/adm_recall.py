"""Improved recall as ADM's evaluator computes it, with all samples (Dhariwal and Nichol, arXiv 2105.05233)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import NEIGHBOUR_IMAGES, Need
from hpcddm.evaluation.metrics.overlap import NEIGHBOURS


class AdmRecall(InOnePass, Metric):
    """Fraction of the first 10,000 real images inside a closed ball around one of all samples (k = 3).

    Up to 10,000 images it would equal recall.
    """

    title = "ADM recall"
    explanation = (
        f"the share of the first {NEIGHBOUR_IMAGES:,} held-out images that are closer to some sample than that"
        f" sample's k-th nearest neighbour among all samples, k = {NEIGHBOURS}"
    )
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.FEATURES})
    order = 54
    smallest = NEIGHBOUR_IMAGES + 1

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the real images."""
        return inputs.overlap_of_all.adm.recall

    def setting(self, images: int) -> str:
        """Return the numbers of real images and of samples."""
        return f"{NEIGHBOUR_IMAGES}x{images}"
