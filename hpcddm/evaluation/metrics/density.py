"""Density: the number of real images whose neighbourhood contains a sample (Naeem et al., arXiv 2002.09797)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.metric_inputs import OVERLAP_IMAGES, MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.overlap import DENSITY_NEIGHBOURS


class Density(InOnePass, Metric):
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

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the samples."""
        return inputs.overlap.density

    def setting(self, images: int) -> str:
        """Return the number of images that are compared."""
        return str(min(images, OVERLAP_IMAGES))
