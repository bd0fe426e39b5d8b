"""Fraction of samples that the classifier assigns to the requested class."""

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need


class Agreement(Metric):
    """Fraction of samples that the classifier assigns to their label."""

    title = "classifier agrees"
    explanation = "the share of images that the classifier assigns to the requested class"
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.AGREED})
    order = 30
    is_headline = True

    def compute(self, evaluation: MetricInputs) -> float:
        """Average over the samples."""
        return float(evaluation.samples.agreed.mean())
