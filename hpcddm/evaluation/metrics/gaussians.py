"""Gaussians fitted to features, and the Frechet distance between them."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics

WELL_CONDITIONED = 1e-5
"""Smallest ratio of the entries on the diagonal of a Cholesky factor that is used."""

LEAST_EIGENVALUE = 1e-11
"""Smallest ratio of eigenvalues whose square roots are right to ten digits of the largest."""


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A Gaussian fitted to vectors.

    Args:
        count: Number N of the vectors.
        mean: (D,) mean.
        rows: (N, D) matrix F with F^T F = C, the unbiased covariance; None if the covariance is given.
        covariance: (D, D) C; None if the rows are given, which are cheaper for N < D.
    """

    count: int
    mean: np.ndarray
    rows: np.ndarray | None = None
    covariance: np.ndarray | None = None

    @classmethod
    def from_features(cls, features: np.ndarray) -> "Gaussian":
        """Fit to features (N, D).

        Raises:
            ValueError: There are fewer than 2 vectors.
        """
        if len(features) < 2:
            raise ValueError(f"a covariance needs at least 2 samples, not {len(features)}")
        mean = features.mean(0, dtype=np.float64)
        return cls(len(features), mean, rows=(features.astype(np.float64) - mean) / math.sqrt(len(features) - 1))

    @classmethod
    def from_statistics(cls, statistics: FeatureStatistics) -> "Gaussian":
        """Take over mean and covariance."""
        return cls(statistics.count, statistics.mean, covariance=statistics.covariance())

    @cached_property
    def factor(self) -> np.ndarray:
        """(R, D) matrix F with F^T F = C; one made of the covariance has as many rows as that has rank."""
        return self._own_rows() if self.covariance is None else _factor(self.covariance)

    @cached_property
    def variance(self) -> float:
        """Trace of C."""
        return float(np.square(self._own_rows()).sum() if self.covariance is None else np.trace(self.covariance))

    @property
    def lacks_rank(self) -> bool:
        """True if the vectors span fewer dimensions than they have."""
        return len(self.factor) < len(self.mean) or self.count <= len(self.mean)

    def seen_by(self, factor: np.ndarray) -> np.ndarray:
        """Return a matrix with the eigenvalues of F C F^T that can differ from zero.

        Args:
            factor: (R, D) F, such as another Gaussian's.
        """
        if self.covariance is None:
            return _smaller_product(factor @ self._own_rows().T)
        return factor @ self.covariance @ factor.T

    def _own_rows(self) -> np.ndarray:
        if self.rows is None:
            raise ValueError("a Gaussian needs rows or a covariance")
        return self.rows


def frechet_distance(first: Gaussian, second: Gaussian) -> float:
    """Compute |m1 - m2|^2 + tr(C1 + C2 - 2 (C1^1/2 C2 C1^1/2)^1/2), the squared 2-Wasserstein distance.

    The trace of the last term is the sum of the singular values of F1 F2^T, which are real.

    Returns:
        The distance, at least 0.
    """
    return _distance(first, second, _sum_of_singular_values(first.factor @ second.factor.T))


def frechet_distance_of_part(first: Gaussian, second: Gaussian) -> float:
    """Compute the Frechet distance of sets without some images, for an interval.

    Only the second Gaussian needs a factor, which may serve for many, and nearly singular covariances take no singular
    values. The result is exact to about 1e-8 of the variances for each feature whose variance is negligible.
    """
    return _distance(first, second, _sum_of_roots(np.linalg.eigvalsh(first.seen_by(second.factor))))


def _distance(first: Gaussian, second: Gaussian, cross: float) -> float:
    shift = float(np.square(first.mean - second.mean).sum())
    return max(0.0, shift + first.variance + second.variance - 2 * cross)


def _smaller_product(matrix: np.ndarray) -> np.ndarray:
    """Return M M^T or M^T M, whichever is smaller."""
    return matrix @ matrix.T if len(matrix) <= matrix.shape[1] else matrix.T @ matrix


def _sum_of_roots(squares: np.ndarray) -> float:
    return float(np.sqrt(squares.clip(min=0)).sum())


def _sum_of_singular_values(matrix: np.ndarray) -> float:
    """Sum the singular values of a matrix (R, S); the sum is 0 for R = 0.

    Square roots of the eigenvalues of the smaller product take a third of the time, and turn the rounding of a zero
    from 1e-16 into 1e-8.
    """
    squares = np.linalg.eigvalsh(_smaller_product(matrix))
    if squares.size and squares[0] > LEAST_EIGENVALUE * squares[-1]:
        return _sum_of_roots(squares)
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
