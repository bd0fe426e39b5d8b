"""Coverage: the fraction of real images with a sample near them (Naeem et al., arXiv 2002.09797)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.metric_inputs import OVERLAP_IMAGES, MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.overlap import DENSITY_NEIGHBOURS


class Coverage(InOnePass, Metric):
    """Fraction of balls around real images that contain a sample (eq. 4, k = 5); depends on the numbers of images."""

    title = "coverage"
    explanation = f"the share of held-out images that reach a sample, by their {DENSITY_NEIGHBOURS} nearest"
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.FEATURES})
    order = 70
    is_column = True
    smallest = DENSITY_NEIGHBOURS + 1

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the real images."""
        return inputs.overlap.coverage

    def setting(self, images: int) -> str:
        """Return the number of images that are compared."""
        return str(min(images, OVERLAP_IMAGES))
