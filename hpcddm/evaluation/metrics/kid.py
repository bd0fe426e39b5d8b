"""Kernel distance between two sets of features (KID; Binkowski et al., arXiv 1801.01401)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need

ROWS_PER_BLOCK = 1024


class KernelDistance(Metric):
    """Kernel distance between samples and real images."""

    title = "KID"
    explanation = "the kernel distance to held-out images, which does not depend on their number"
    better = Better.LOWER
    format = ".4f"
    needs = frozenset({Need.FEATURES})
    order = 20
    digits = 3
    is_headline = True

    def compute(self, evaluation: MetricInputs) -> float:
        """Compare the features of the samples with those of the real images."""
        return kernel_distance(evaluation.samples.features, evaluation.real.features)


def kernel_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Compute the unbiased squared MMD with the kernel (x y / D + 1)^3 over all samples (eq. 4 and sec. 4).

    Unlike the Frechet distance it does not depend on the number of samples, and it can be slightly negative.

    Args:
        first: (N, D) features.
        second: (M, D) features.

    Raises:
        ValueError: A set has fewer than two samples.
    """
    if min(len(first), len(second)) < 2:
        raise ValueError(f"a kernel distance needs 2 samples of each, not {len(first)} and {len(second)}")
    first, second = first.astype(np.float64), second.astype(np.float64)
    between = _sum(first, second) / (len(first) * len(second))
    return float(_mean_within(first) + _mean_within(second) - 2 * between)


def _mean_within(points: np.ndarray) -> float:
    """Compute the kernel's mean over pairs of distinct points."""
    diagonal = (np.square(points).sum(1) / points.shape[1] + 1) ** 3
    return (_sum(points, points) - diagonal.sum()) / (len(points) * (len(points) - 1))


def _sum(first: np.ndarray, second: np.ndarray) -> float:
    """Compute the kernel's sum over all pairs, a block of rows at a time."""
    dimension = first.shape[1]
    blocks = (first[start : start + ROWS_PER_BLOCK] for start in range(0, len(first), ROWS_PER_BLOCK))
    return float(sum(((block @ second.T / dimension + 1) ** 3).sum() for block in blocks))
