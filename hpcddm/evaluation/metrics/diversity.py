"""Diversity of samples within a class, which drops if a model repeats the same image (mode collapse)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs, over_tenths
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.ratios import ratio


class Diversity(Metric):
    """Mean distance between samples of one class, divided by that of an equal number of real images."""

    title = "diversity"
    explanation = (
        "mean distance between samples of one class, divided by that of held-out images;"
        " a substitute for LPIPS within a prompt"
    )
    better = Better.NEAR_ONE
    format = ".2f"
    needs = frozenset({Need.FEATURES, Need.LABELS})
    order = 80
    is_column = True

    def compute(self, inputs: MetricInputs) -> float:
        """Divide the diversity of the samples by that of the real images."""
        return ratio(inputs.samples.class_distances[0], inputs.real.class_distances[0])

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Leave out the pairs of a tenth; NaN if no class has a pair left."""
        samples, real = inputs.samples.class_distances, inputs.real.class_distances
        return over_tenths(inputs.samples.count, lambda tenth: ratio(samples[tenth + 1], real[tenth + 1]))
