"""Diversity of samples of one condition by LPIPS (Zhu et al., arXiv 1711.11586, sec. 5; arXiv 2603.06741)."""

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import MeanOfPart
from hpcddm.evaluation.metrics.need import Need


class LpipsDiversity(MeanOfPart, Metric):
    """Mean LPIPS between two samples of one condition, averaged over conditions; it ignores the real images."""

    title = "LPIPS diversity"
    explanation = "the mean LPIPS between two samples of one condition; noise has a higher value than real images"
    better = Better.HIGHER
    format = ".3f"
    needs = frozenset({Need.SPREAD})
    order = 82
    is_ranked = False
    digits = 3
