"""Frechet distance of samples, in units of the distance of training images."""

from functools import lru_cache

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.gaussians import frechet_distance
from hpcddm.evaluation.metrics.metric_inputs import ImageSet, MetricInputs, frechet_left_out, over_tenths
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.ratios import ratio


class FrechetRatio(Metric):
    """FD of the samples to held-out images, divided by that of as many training images.

    Both have the same bias by the number of images, so that ratios of different evaluators can be compared.
    """

    title = "FD ratio"
    explanation = (
        "the Frechet distance to held-out images, divided by that of as many training images: 1 for real images"
    )
    better = Better.LOWER
    format = ".2f"
    needs = frozenset({Need.FEATURES})
    order = 14
    reads_training = True
    digits = 3

    def compute(self, inputs: MetricInputs) -> float:
        """Divide the distances."""
        return ratio(inputs.frechet, _floors(inputs.train, inputs.real)[0], inputs.real.gaussian.variance)

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Leave out a tenth of all three sets."""
        floors, scale = _floors(inputs.train, inputs.real)[1:], inputs.real.gaussian.variance
        distances = inputs.frechet_left_out
        return over_tenths(inputs.samples.count, lambda tenth: ratio(distances[tenth], floors[tenth], scale))


@lru_cache(maxsize=1)
def _floors(train: ImageSet, real: ImageSet) -> np.ndarray:
    """Compute the distance of training images, then without each tenth, (11,); all arms have the same."""
    return np.append(frechet_distance(train.gaussian, real.gaussian), frechet_left_out(train, real))
