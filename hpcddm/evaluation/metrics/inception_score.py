"""Inception score: how sure and how varied the classes that a classifier names are (arXiv 1606.03498)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.calibration import log_softmax
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.tenth_rows import TENTHS, tenth_rows, without_rows


class InceptionScore(InOnePass, Metric):
    """Mean over ten splits, in their order, of exp E KL(p(y | x) || p(y)); it ignores the real images."""

    title = "IS"
    explanation = (
        "the inception score by this evaluator's own classes: at best the number of classes, 1 if all images look alike"
    )
    better = Better.HIGHER
    format = ".2f"
    needs = frozenset({Need.LOGITS})
    order = 32
    digits = 3
    smallest = TENTHS

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the splits; they are the tenths that are left out."""
        logits = inputs.samples.part(Need.LOGITS)
        scores = np.array([_score(logits[rows]) for rows in tenth_rows(len(logits))])
        return np.array([scores.mean(), *(without_rows(scores, tenth).mean() for tenth in range(TENTHS))])

    def setting(self, images: int) -> str:
        """Return the number of splits."""
        return str(TENTHS)


def _score(logits: np.ndarray) -> float:
    logarithms = log_softmax(logits)
    shares = np.exp(logarithms)
    # A class that no image has adds nothing.
    overall = np.log(np.maximum(shares.mean(0), np.finfo(np.float64).tiny))
    return float(np.exp((shares * (logarithms - overall)).sum(1).mean()))
