"""Base of the clusterings: a partition of the data, fitted to the features of the training images."""

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float, Int64

from hpcddm.plugins import S, Variant


class Partition(ABC):
    """A rule that gives every sample one of K clusters."""

    @abstractmethod
    def assign(self, features: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        """Return the samples' clusters, 0 to K - 1, independent of how samples are batched."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that define the partition, by name."""


class Clustering(Variant[S]):
    """A clustering that cuts the training images into clusters, one for each expert."""

    @abstractmethod
    def fit(self, features: Float[np.ndarray, "n d"], num_clusters: int, seed: int) -> Partition:
        """Cluster features into `num_clusters` non-empty clusters; the number of threads changes nothing.

        Raises ValueError for features that cannot be clustered so, such as those that are not finite.
        """
