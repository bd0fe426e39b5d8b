"""Frechet distance between Gaussians fitted to two sets of features (Heusel et al., arXiv 1706.08500)."""

import warnings

import numpy as np

from hpcddm.evaluation.metrics import gaussians
from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.metrics.gaussians import Gaussian
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need


class FrechetDistance(Metric):
    """Frechet distance between samples and real images."""

    title = "FD"
    explanation = "the Frechet distance to held-out images, comparable only at equal numbers of images"
    better = Better.LOWER
    format = ".2f"
    needs = frozenset({Need.FEATURES})
    order = 10
    is_column = True
    digits = 3
    is_headline = True

    def compute(self, inputs: MetricInputs) -> float:
        """Compare the Gaussians of the samples and of the real images."""
        warn_of_few(inputs.samples.gaussian, inputs.real.gaussian)
        return inputs.frechet

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Merge the statistics of the other tenths."""
        return inputs.frechet_left_out


def frechet_distance(first: FeatureStatistics, second: FeatureStatistics) -> float:
    """Compute the Frechet distance of two sets by their statistics (eq. 6).

    The estimate is biased upwards by about 1/N: compare values at equal N only. The function warns if a set has fewer
    than 2 D samples, because its covariance is then a poor estimate, or if its features span fewer than D dimensions.

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
    fitted = Gaussian.from_statistics(first), Gaussian.from_statistics(second)
    warn_of_few(*fitted)
    return gaussians.frechet_distance(*fitted)


def warn_of_few(*fitted: Gaussian) -> None:
    """Warn if a covariance is a poor estimate, or singular; the warning names the line that called the caller."""
    dimension, smallest = len(fitted[0].mean), min(gaussian.count for gaussian in fitted)
    if smallest < 2 * dimension:
        warnings.warn(
            f"Frechet distance of {dimension} features from {smallest} samples: use at least {2 * dimension},"
            " or the kernel distance",
            stacklevel=3,
        )
    elif any(gaussian.lacks_rank for gaussian in fitted):
        rank = min(len(gaussian.factor) for gaussian in fitted)
        warnings.warn(
            f"Frechet distance of {dimension} features that span {rank} dimensions only: some are constant or"
            " copies, or many images are equal",
            stacklevel=3,
        )
