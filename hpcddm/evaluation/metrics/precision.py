"""Improved precision: the fraction of samples that look real (Kynkaanniemi et al., arXiv 1904.06991)."""

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.neighbours import NEIGHBOURS


class Precision(Metric):
    """Fraction of samples inside a ball around a real image (eq. 1, k = 3); depends on the numbers of images."""

    title = "precision"
    explanation = (
        "the share of samples within reach of a held-out image, which reaches as far as the"
        f" {NEIGHBOURS} nearest of its own kind"
    )
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.FEATURES})
    order = 40

    def compute(self, evaluation: MetricInputs) -> float:
        """Average over the samples."""
        return float(evaluation.overlap.fake_in_real.mean())
