"""Mean and covariance of features, computed in parts and merged exactly."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROWS_PER_BLOCK = 8192
"""Features that are converted to float64 at the same time."""


@dataclass(frozen=True)
class FeatureStatistics:
    """First two moments of a set of feature vectors, in float64.

    Centred products avoid the cancellation in sums of raw second moments (Chan, Golub, LeVeque 1983).

    Args:
        count: Number of vectors N.
        mean: (D,) mean.
        scatter: (D, D) sum of the centred outer products.

    Examples:
        >>> features = np.arange(8.0).reshape(4, 2)
        >>> parts = [FeatureStatistics.from_features(part) for part in (features[:1], features[1:])]
        >>> merged = parts[0].merge(parts[1])
        >>> merged.mean.tolist(), bool(np.allclose(merged.covariance(), np.cov(features.T)))
        ([3.0, 4.0], True)
    """

    count: int
    mean: np.ndarray
    scatter: np.ndarray

    @classmethod
    def from_features(cls, features: np.ndarray) -> "FeatureStatistics":
        """Compute the statistics of features (N, D); N may be 0 or 1."""
        mean = features.sum(0, dtype=np.float64) / max(len(features), 1)
        scatter = np.zeros((features.shape[1], features.shape[1]))
        for start in range(0, len(features), ROWS_PER_BLOCK):
            centred = features[start : start + ROWS_PER_BLOCK].astype(np.float64) - mean
            scatter += centred.T @ centred
        return cls(len(features), mean, scatter)

    def merge(self, other: "FeatureStatistics") -> "FeatureStatistics":
        """Return the statistics of the union of two sets (pairwise update of Chan et al., eq. 2.1); associative."""
        count = self.count + other.count
        if count == 0:
            return self
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        scatter = self.scatter + other.scatter + np.outer(delta, delta) * (self.count * other.count / count)
        return FeatureStatistics(count, mean, scatter)

    @classmethod
    def union(cls, parts: Sequence["FeatureStatistics"]) -> "FeatureStatistics":
        """Return the statistics of the union of several sets, not all of them empty."""
        counts = np.array([part.count for part in parts], dtype=np.float64)
        mean = counts @ np.array([part.mean for part in parts]) / counts.sum()
        shifts = np.sqrt(counts)[:, None] * (np.array([part.mean for part in parts]) - mean)
        scatter = shifts.T @ shifts
        for part in parts:
            scatter += part.scatter
        return cls(int(counts.sum()), mean, scatter)

    def covariance(self) -> np.ndarray:
        """Compute the unbiased covariance (D, D).

        Raises:
            ValueError: The set has fewer than two vectors.
        """
        if self.count < 2:
            raise ValueError(f"a covariance needs at least 2 samples, not {self.count}")
        return self.scatter / (self.count - 1)
