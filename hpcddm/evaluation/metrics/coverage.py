"""Coverage: the fraction of real images with a sample near them (Naeem et al., arXiv 2002.09797)."""

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.neighbours import DENSITY_NEIGHBOURS


class Coverage(Metric):
    """Fraction of balls around real images that contain a sample (eq. 4, k = 5); depends on the numbers of images."""

    title = "coverage"
    explanation = f"the share of held-out images that reach a sample, by their {DENSITY_NEIGHBOURS} nearest"
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.FEATURES})
    order = 70

    def compute(self, evaluation: MetricInputs) -> float:
        """Average over the real images."""
        return float(evaluation.overlap.real_holds_fake.mean())
