"""Improved precision as ADM's evaluator computes it, with all samples (Dhariwal and Nichol, arXiv 2105.05233)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.metric_inputs import OVERLAP_IMAGES, MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.overlap import NEIGHBOURS


class AdmPrecision(InOnePass, Metric):
    """Fraction of all samples inside a closed ball around one of the first 10,000 real images (k = 3).

    Up to 10,000 images it would equal precision.
    """

    title = "ADM precision"
    explanation = (
        f"the share of all samples within reach of one of the first {OVERLAP_IMAGES:,} held-out images, reaching as"
        f" far as the {NEIGHBOURS} nearest of its own kind"
    )
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.FEATURES})
    order = 52
    smallest = OVERLAP_IMAGES + 1

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the samples."""
        return inputs.adm_overlap.precision

    def setting(self, images: int) -> str:
        """Return the numbers of real images and of samples."""
        return f"{OVERLAP_IMAGES}x{images}"
