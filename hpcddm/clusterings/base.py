"""Bases of the clusterings: they fit a partition of the data to training samples, most of them to features."""

from abc import abstractmethod

import numpy as np
from jaxtyping import Float

from hpcddm.clusterings.partition import Partition
from hpcddm.clusterings.samples import Samples
from hpcddm.data.columns import Numbers
from hpcddm.plugins import S, Variant


class Clustering(Variant[S]):
    """A clustering that cuts the data into clusters, one for each expert."""

    @abstractmethod
    def fit(self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int) -> Partition:
        """Fit a partition into `num_clusters` clusters to some training samples: all, or of very many some.

        Raises ValueError or `UserError` for samples that cannot be clustered so.
        """

    @abstractmethod
    def load(self, arrays: dict[str, np.ndarray]) -> Partition:
        """Make a fitted partition again from its `arrays()`."""


class FeatureClustering(Clustering[S]):
    """Clustering by features alone, which need not be those of samples."""

    def fit(self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int) -> Partition:
        return self.fit_features(samples.features(numbers), num_clusters, seed)

    @abstractmethod
    def fit_features(self, features: Float[np.ndarray, "n d"], num_clusters: int, seed: int) -> Partition:
        """Cluster features into `num_clusters` non-empty clusters; the number of threads changes nothing.

        Raises ValueError for features that cannot be clustered so, such as those that are not finite.
        """
