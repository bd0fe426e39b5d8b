"""Base of the clusterings: they fit a partition of the data to features of training images."""

from abc import abstractmethod

import numpy as np
from jaxtyping import Float

from hpcddm.clusterings.partition import Partition
from hpcddm.plugins import S, Variant


class Clustering(Variant[S]):
    """A clustering that cuts the data into clusters, one for each expert."""

    @abstractmethod
    def fit(self, features: Float[np.ndarray, "n d"], num_clusters: int, seed: int) -> Partition:
        """Cluster features into `num_clusters` non-empty clusters; the number of threads changes nothing.

        Raises ValueError for features that cannot be clustered so, such as those that are not finite.
        """

    @abstractmethod
    def load(self, arrays: dict[str, np.ndarray]) -> Partition:
        """Make a fitted partition again from its `arrays()`."""
