"""Fraction of samples that the classifier assigns to the requested class."""

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import MeanOfPart
from hpcddm.evaluation.metrics.need import Need


class Agreement(MeanOfPart, Metric):
    """Fraction of samples that the classifier assigns to their label."""

    title = "classifier agrees"
    explanation = "the share of images that the classifier assigns to the requested class"
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.AGREED})
    order = 30
    is_column = True
    is_headline = True
