"""Coverage: how many real images have a sample near them (Naeem et al., arXiv 2002.09797)."""

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.evaluation import Evaluation
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.neighbours import DENSITY_NEIGHBOURS


class Coverage(Metric):
    """Share of real balls that hold a sample (eq. 4, k = 5); depends on the numbers of images."""

    title = "coverage"
    explanation = f"the share of held-out images that reach a sample, by their {DENSITY_NEIGHBOURS} nearest"
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.FEATURES})
    order = 70

    def compute(self, evaluation: Evaluation) -> float:
        return float(evaluation.overlap.real_holds_fake.mean())
