"""Diversity of samples of one condition by LPIPS (Zhu et al., arXiv 1711.11586, sec. 5; arXiv 2603.06741)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs, means_left_out
from hpcddm.evaluation.metrics.need import Need


class LpipsDiversity(Metric):
    """Mean LPIPS between two samples of one condition, averaged over conditions; it ignores the real images."""

    title = "LPIPS diversity"
    explanation = "the mean LPIPS between two samples of one condition; noise has a higher value than real images"
    better = Better.HIGHER
    format = ".3f"
    needs = frozenset({Need.SPREAD})
    order = 82
    is_ranked = False
    digits = 3

    def compute(self, inputs: MetricInputs) -> float:
        """Average over the conditions."""
        return float(inputs.samples.part(Need.SPREAD).mean(dtype=np.float64))

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the other conditions."""
        return means_left_out(inputs.samples.part(Need.SPREAD))
