"""Fraction of samples that the classifier assigns to the requested class."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs, means_left_out
from hpcddm.evaluation.metrics.need import Need


class Agreement(Metric):
    """Fraction of samples that the classifier assigns to their label."""

    title = "classifier agrees"
    explanation = "the share of images that the classifier assigns to the requested class"
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.AGREED})
    order = 30
    is_column = True
    is_headline = True

    def compute(self, inputs: MetricInputs) -> float:
        """Average over the samples."""
        return float(inputs.samples.part(Need.AGREED).mean())

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the samples of the other tenths."""
        return means_left_out(inputs.samples.part(Need.AGREED))
