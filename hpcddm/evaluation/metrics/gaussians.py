"""Gaussians fitted to features, and the Frechet distance between them."""

import math
from dataclasses import dataclass

import numpy as np

from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics

WELL_CONDITIONED = 1e-5
"""Smallest ratio of the entries on the diagonal of a Cholesky factor that is used."""

LEAST_EIGENVALUE = 1e-11
"""Smallest ratio of eigenvalues whose square roots are right to ten digits of the largest."""


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian whose covariance is known by a factor of it.

    Args:
        count: Number N of the vectors to which it was fitted.
        mean: (D,) mean.
        factor: (R, D) matrix F with F^T F = C, the unbiased covariance.
        variance: Trace of C.
    """

    count: int
    mean: np.ndarray
    factor: np.ndarray
    variance: float

    @classmethod
    def from_features(cls, features: np.ndarray) -> "Gaussian":
        """Fit to features (N, D); the factor has N rows, which is cheaper than the covariance for N < D.

        Raises:
            ValueError: There are fewer than 2 vectors.
        """
        if len(features) < 2:
            raise ValueError(f"a covariance needs at least 2 samples, not {len(features)}")
        mean = features.mean(0, dtype=np.float64)
        factor = (features.astype(np.float64) - mean) / math.sqrt(len(features) - 1)
        return cls(len(features), mean, factor, float(np.square(factor).sum()))

    @classmethod
    def from_statistics(cls, statistics: FeatureStatistics) -> "Gaussian":
        """Take over mean and covariance; the factor has as many rows as the covariance has rank."""
        covariance = statistics.covariance()
        factor = _factor(covariance)
        return cls(statistics.count, statistics.mean, factor, float(np.trace(covariance)))

    @property
    def lacks_rank(self) -> bool:
        """True if the vectors span fewer dimensions than they have."""
        return len(self.factor) < len(self.mean) or self.count <= len(self.mean)


def frechet_distance(first: Gaussian, second: Gaussian, is_part: bool = False) -> float:
    """Compute |m1 - m2|^2 + tr(C1 + C2 - 2 (C1^1/2 C2 C1^1/2)^1/2), the squared 2-Wasserstein distance.

    The trace of the last term is the sum of the singular values of F1 F2^T, which are real.

    Args:
        first: One Gaussian.
        second: The other one.
        is_part: True for a value without some images, for an interval: six digits do for nearly singular covariances,
            which takes a third of the time.

    Returns:
        The distance, at least 0.
    """
    cross = _sum_of_singular_values(first.factor @ second.factor.T, 0.0 if is_part else LEAST_EIGENVALUE)
    shift = float(np.square(first.mean - second.mean).sum())
    return max(0.0, shift + first.variance + second.variance - 2 * cross)


def _sum_of_singular_values(matrix: np.ndarray, least: float) -> float:
    """Sum the singular values of a matrix (R, S).

    Square roots of the eigenvalues of the smaller product take a third of the time, and turn the rounding of a zero
    from 1e-16 into 1e-8.

    Args:
        matrix: (R, S) matrix; its sum is 0 for R = 0.
        least: Smallest ratio of two eigenvalues for which their square roots are taken.
    """
    squares = np.linalg.eigvalsh(matrix @ matrix.T if len(matrix) <= matrix.shape[1] else matrix.T @ matrix)
    if least == 0 or (squares.size and squares[0] > least * squares[-1]):
        return float(np.sqrt(squares.clip(min=0)).sum())
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


def _factor(covariance: np.ndarray) -> np.ndarray:
    """Factorise a covariance (D, D) by Cholesky's method or, if it is nearly singular, by its eigenvectors."""
    try:
        lower = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return _root(covariance)
    diagonal = np.diag(lower)
    return lower.T if diagonal.min() > WELL_CONDITIONED * diagonal.max() else _root(covariance)


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)
    # Rounding leaves this much of a zero.
    kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
    return np.sqrt(values[kept])[:, None] * vectors[:, kept].T
