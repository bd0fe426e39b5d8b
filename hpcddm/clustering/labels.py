"""Classes as clusters: one for each, or one for each of several groups of them."""

from collections import Counter
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int64

from hpcddm.clustering.base import Clustering, Workspace
from hpcddm.clustering.partition import Partition, require_every_cluster
from hpcddm.clustering.samples import Samples
from hpcddm.config.clustering import ClusteringSettings
from hpcddm.data.columns import Numbers
from hpcddm.errors import UserError


class LabelClusteringSettings(ClusteringSettings):
    """Classes of every cluster, such as [[0, 2, 4, 6], [1, 3], [5, 7, 8, 9]]; without them each class is a cluster.

    Groups of classes that no network knows need no data.num_classes: the images' classes only cut the data.
    """

    needs_features: ClassVar[bool] = False

    groups: list[list[int]] | None = None

    @property
    def numbers_classes(self) -> bool:
        """True for groups."""
        return self.groups is not None

    def remedy(self, num_clusters: int) -> str:
        """Name the groups."""
        return "groups: other classes together, so that each group has about as many images"

    def check(self, experiment: Any) -> None:
        """Raise ValueError for data without classes, or groups that do not give each class one expert."""
        num_classes, num_experts = experiment.data.num_classes, experiment.cluster.experts
        if self.groups is None:
            if num_classes is None:
                raise ValueError("set data.num_classes, or groups, a list of the classes of each expert")
            if num_classes != num_experts:
                text = f"{num_classes} classes for {num_experts} experts; set cluster.experts: {num_classes}"
                raise ValueError(f"{text}, or groups, a list of the classes of each expert")
            return
        if len(self.groups) != num_experts:
            raise ValueError(f"groups: {len(self.groups)} groups for {num_experts} experts")
        if [] in self.groups:
            raise ValueError(f"groups: group {self.groups.index([])} has no class")
        grouped = Counter(label for group in self.groups for label in group)
        if num_classes is None:
            num_classes = len(grouped)
        for label in sorted({*grouped, *range(num_classes)}):
            if not 0 <= label < num_classes:
                raise ValueError(f"groups: {label} is not a class; valid classes are 0 to {num_classes - 1}")
            if grouped[label] != 1:
                raise ValueError(f"groups: class {label} is listed {grouped[label]} times, must be once")


class ClusterOfClass(Partition):
    """Table of the classes; clusters: that of each class."""

    def __init__(self, clusters: Int64[np.ndarray, " c"]) -> None:
        self.clusters = clusters

    def assign(self, samples: Samples, numbers: Numbers) -> Int64[np.ndarray, " n"]:
        labels = samples.labels(numbers)
        wrong = labels[(labels < 0) | (labels >= len(self.clusters))]
        if len(wrong):
            key = samples.keys([int(np.asarray(numbers)[labels == wrong[0]][0])])[0]
            raise UserError(f"{key}: no group of cluster.clustering has class {wrong[0]}")
        return self.clusters[labels]

    def require(self, num_clusters: int, dimensions: int) -> None:
        require_every_cluster(self.clusters, num_clusters)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"clusters": self.clusters}


class LabelClustering(Clustering[LabelClusteringSettings]):
    """Clusters by class, as the settings group them."""

    def fit(
        self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace
    ) -> ClusterOfClass:
        groups = self.settings.groups or [[label] for label in range(num_clusters)]
        clusters = {label: cluster for cluster, group in enumerate(groups) for label in group}
        return ClusterOfClass(np.array([clusters[label] for label in sorted(clusters)], dtype=np.int64))

    def load(self, arrays: dict[str, np.ndarray]) -> ClusterOfClass:
        partition, groups = ClusterOfClass(**arrays), self.settings.groups
        if groups is not None and len(partition.clusters) != sum(map(len, groups)):
            raise ValueError(f"has clusters of {len(partition.clusters)} classes, and groups {sum(map(len, groups))}")
        return partition
