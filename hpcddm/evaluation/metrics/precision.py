"""Improved precision: how many samples look real (Kynkaanniemi et al., arXiv 1904.06991)."""

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.evaluation import Evaluation
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.neighbours import NEIGHBOURS


class Precision(Metric):
    """Share of samples in some ball of a real image (eq. 1, k = 3); depends on the numbers of images."""

    title = "precision"
    explanation = (
        "the share of samples within reach of a held-out image, which reaches as far as the"
        f" {NEIGHBOURS} nearest of its own kind"
    )
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.FEATURES})
    order = 40

    def compute(self, evaluation: Evaluation) -> float:
        return float(evaluation.overlap.fake_in_real.mean())
