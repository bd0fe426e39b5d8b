"""Random clusters of equal size: what the papers compare clusters of features with (arXiv 2501.05450, fig. 4c)."""

from operator import index
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from hpcddm.clustering.base import Clustering, Workspace
from hpcddm.clustering.partition import Partition
from hpcddm.clustering.samples import Samples
from hpcddm.config.clustering import ClusteringSettings
from hpcddm.data.columns import Numbers
from hpcddm.randomness.keyed import Bijection
from hpcddm.randomness.streams import RANDOM_CLUSTERS


class RandomClusteringSettings(ClusteringSettings):
    """Variant without settings; the seed is the experiment's."""

    needs_features: ClassVar[bool] = False
    takes_new_samples: ClassVar[bool] = False


class RandomPartition(Partition):
    """The place of a sample in a random order of all of its split, modulo K: sizes differ by one sample at most."""

    def __init__(self, seed: int, num_clusters: int) -> None:
        self.seed, self.num_clusters = seed, num_clusters

    def assign(self, samples: Samples, numbers: Numbers) -> Int64[np.ndarray, " n"]:
        order = Bijection(f"{self.seed}/{RANDOM_CLUSTERS}", len(samples))
        return order(np.asarray(numbers, dtype=np.int64)) % self.num_clusters

    def require(self, num_clusters: int, dimensions: int) -> None:
        if self.num_clusters != num_clusters:
            raise ValueError(f"has {self.num_clusters} clusters, and the experiment {num_clusters}")

    def arrays(self) -> dict[str, np.ndarray]:
        return {"seed": np.array(self.seed), "num_clusters": np.array(self.num_clusters)}


class RandomClustering(Clustering[RandomClusteringSettings]):
    """Clusters that are independent of the samples' content."""

    def fit(
        self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace
    ) -> RandomPartition:
        return RandomPartition(seed, num_clusters)

    def load(self, arrays: dict[str, np.ndarray]) -> RandomPartition:
        return RandomPartition(**{name: index(value) for name, value in arrays.items()})
