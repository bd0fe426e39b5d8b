"""Coverage: the fraction of real images with a sample near them (Naeem et al., arXiv 2002.09797)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import OVERLAP_IMAGES, MetricInputs, over_tenths
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.overlap import DENSITY_NEIGHBOURS


class Coverage(Metric):
    """Fraction of balls around real images that contain a sample (eq. 4, k = 5); depends on the numbers of images."""

    title = "coverage"
    explanation = f"the share of held-out images that reach a sample, by their {DENSITY_NEIGHBOURS} nearest"
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.FEATURES})
    order = 70
    is_column = True
    smallest = DENSITY_NEIGHBOURS + 1

    def compute(self, inputs: MetricInputs) -> float:
        """Average over the real images."""
        return float(inputs.overlap.coverage[0])

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Leave out tenths of the images that are compared."""
        return over_tenths(inputs.samples.count, lambda tenth: float(inputs.overlap.coverage[tenth + 1]))

    def setting(self, images: int) -> str:
        """Return the number of images that are compared."""
        return str(min(images, OVERLAP_IMAGES))
