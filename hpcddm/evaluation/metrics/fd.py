"""Frechet distance between Gaussians fitted to two sets of features (Heusel et al., arXiv 1706.08500)."""

import warnings

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need


class FrechetDistance(Metric):
    """Frechet distance between samples and real images."""

    title = "FD"
    explanation = "the Frechet distance to held-out images, which compares at equal numbers of images only"
    better = Better.LOWER
    format = ".2f"
    needs = frozenset({Need.STATISTICS})
    order = 10
    digits = 3
    is_headline = True

    def compute(self, evaluation: MetricInputs) -> float:
        """Compare the feature statistics of the samples with those of the real images."""
        return frechet_distance(evaluation.samples.statistics, evaluation.real.statistics)


def frechet_distance(first: FeatureStatistics, second: FeatureStatistics) -> float:
    """Compute |m1 - m2|^2 + tr(C1 + C2 - 2 (C1^1/2 C2 C1^1/2)^1/2), the squared 2-Wasserstein distance (eq. 6).

    The estimate is biased upwards by about 1/N: compare values at equal N only. The function warns if a set has fewer
    than 2 D samples, because its covariance is then a poor estimate.

    Args:
        first: Feature statistics of one set.
        second: Feature statistics of the other set.

    Raises:
        ValueError: A set has fewer than 2 samples.

    Examples:
        >>> features = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> first, second = (FeatureStatistics.from_features(features + shift) for shift in (0, 3))
        >>> round(frechet_distance(first, second), 6)  # equal covariances: the squared shift of the mean
        9.0
    """
    dimension = len(first.mean)
    smallest = min(first.count, second.count)
    if smallest < 2 * dimension:
        warnings.warn(
            f"Frechet distance of {dimension} features from {smallest} samples: use at least {2 * dimension},"
            " or the kernel distance",
            stacklevel=2,
        )
    covariance1, covariance2 = first.covariance(), second.covariance()
    # The singular values of C1^1/2 C2^1/2. Square roots of the sandwich's eigenvalues would be the same numbers,
    # but would turn the rounding of zero eigenvalues (features that never fire) from 1e-16 into 1e-8.
    cross = np.linalg.svd(_root(covariance1) @ _root(covariance2), compute_uv=False).sum()
    shift = np.square(first.mean - second.mean).sum()
    return float(shift + np.trace(covariance1) + np.trace(covariance2) - 2 * cross)


def _root(covariance: np.ndarray) -> np.ndarray:
    """Compute the symmetric square root (D, D) of a covariance (D, D)."""
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
