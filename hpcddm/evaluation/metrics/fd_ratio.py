"""Frechet distance of samples, in units of the distance of training images."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.gaussians import frechet_distance
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs, frechet_left_out, over_tenths
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.ratios import ratio


class FrechetRatio(Metric):
    """FD of the samples to held-out images, divided by that of as many training images.

    Both have the same bias by the number of images, so that ratios of different evaluators can be compared.
    """

    title = "FD ratio"
    explanation = "the Frechet distance to held-out images, divided by that of as many training images: 1 for real ones"
    better = Better.LOWER
    format = ".2f"
    needs = frozenset({Need.FEATURES})
    order = 14
    reads_training = True
    digits = 3

    def compute(self, inputs: MetricInputs) -> float:
        """Divide the distances."""
        floor = frechet_distance(inputs.train.gaussian, inputs.real.gaussian)
        return ratio(inputs.frechet, floor, inputs.real.gaussian.variance)

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Leave out a tenth of all three sets."""
        floors, scale = frechet_left_out(inputs.train, inputs.real), inputs.real.gaussian.variance
        distances = inputs.frechet_left_out
        return over_tenths(inputs.samples.count, lambda tenth: ratio(distances[tenth], floors[tenth], scale))
