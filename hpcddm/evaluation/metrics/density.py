"""Density: the number of real images whose neighbourhood contains a sample (Naeem et al., arXiv 2002.09797)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import OVERLAP_IMAGES, MetricInputs, over_tenths
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.overlap import DENSITY_NEIGHBOURS


class Density(Metric):
    """Mean number of balls around real images that contain a sample, divided by k = 5 (eq. 3); it may exceed 1."""

    title = "density"
    explanation = (
        f"how many held-out images reach a sample, by their {DENSITY_NEIGHBOURS} nearest, divided by"
        f" {DENSITY_NEIGHBOURS}: 1 for real ones"
    )
    better = Better.HIGHER
    format = ".2f"
    needs = frozenset({Need.FEATURES})
    order = 60
    is_column = True
    smallest = DENSITY_NEIGHBOURS + 1

    def compute(self, inputs: MetricInputs) -> float:
        """Average over the samples."""
        return float(inputs.overlap.density[0])

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Leave out tenths of the images that are compared."""
        return over_tenths(inputs.samples.count, lambda tenth: float(inputs.overlap.density[tenth + 1]))

    def setting(self, images: int) -> str:
        """Return the number of images that are compared."""
        return str(min(images, OVERLAP_IMAGES))
