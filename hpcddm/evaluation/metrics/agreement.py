"""Share of samples in which the classifier sees the class that was asked for."""

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.evaluation import Evaluation
from hpcddm.evaluation.metrics.need import Need


class Agreement(Metric):
    """Mean agreement of the classifier with the label of a sample."""

    title = "classifier agrees"
    explanation = "the share of images in which the classifier sees the class that was asked for"
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.AGREED})
    order = 30
    is_headline = True

    def compute(self, evaluation: Evaluation) -> float:
        return float(evaluation.samples.agreed.mean())
