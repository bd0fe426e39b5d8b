"""Mean and covariance of features, gathered in pieces and merged exactly."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Statistics:
    """First two moments of a set of feature vectors, in float64.

    count: number of vectors; mean: (D,); scatter: (D, D), the sum of centred outer products. Sums of raw
    second moments would cancel; centred ones do not (Chan, Golub, LeVeque 1983).
    """

    count: int
    mean: np.ndarray
    scatter: np.ndarray

    @classmethod
    def from_features(cls, features: np.ndarray) -> "Statistics":
        """Compute the statistics of features (N, D); N may be 0 or 1."""
        features = features.astype(np.float64)
        mean = features.sum(0) / max(len(features), 1)
        centred = features - mean
        return cls(len(features), mean, centred.T @ centred)

    def merge(self, other: "Statistics") -> "Statistics":
        """Merge the statistics of two sets (pairwise update of Chan et al., eq. 2.1); associative."""
        count = self.count + other.count
        if count == 0:
            return self
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        scatter = self.scatter + other.scatter + np.outer(delta, delta) * (self.count * other.count / count)
        return Statistics(count, mean, scatter)

    def covariance(self) -> np.ndarray:
        """Compute the unbiased covariance (D, D); raises ValueError with fewer than two vectors."""
        if self.count < 2:
            raise ValueError(f"a covariance needs at least 2 samples, not {self.count}")
        return self.scatter / (self.count - 1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the fields as arrays, to be stored; `from_arrays` reads them."""
        return {"count": np.array(self.count), "mean": self.mean, "scatter": self.scatter}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "Statistics":
        """Make statistics from `arrays`."""
        return cls(int(arrays["count"]), np.asarray(arrays["mean"]), np.asarray(arrays["scatter"]))
