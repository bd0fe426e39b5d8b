"""Density: the number of real images whose neighbourhood contains a sample (Naeem et al., arXiv 2002.09797)."""

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.neighbours import DENSITY_NEIGHBOURS


class Density(Metric):
    """Mean number of balls around real images that contain a sample, divided by k = 5 (eq. 3); it may exceed 1."""

    title = "density"
    explanation = (
        f"how many held-out images reach a sample, by their {DENSITY_NEIGHBOURS} nearest, divided by"
        f" {DENSITY_NEIGHBOURS}: 1 for real ones"
    )
    better = Better.HIGHER
    format = ".2f"
    needs = frozenset({Need.FEATURES})
    order = 60

    def compute(self, evaluation: MetricInputs) -> float:
        """Average over the samples."""
        balls = evaluation.overlap.balls_around_fake
        return int(balls.sum()) / (DENSITY_NEIGHBOURS * len(balls))
