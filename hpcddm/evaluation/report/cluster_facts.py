"""Facts about the clusters, as in `clusters.json`, and the warnings that follow from them."""

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from hpcddm.files import checked_reads

TYPICAL, AMBIGUOUS, RANDOM = "typical", "ambiguous", "random"
"""Kinds of samples that are shown of a cluster."""
CATCH_ALL = 2.0
"""Size of a cluster, as a multiple of the mean of the others, above which it is called a catch-all."""
STARVING = 0.5
"""Size of a cluster, as a multiple of the mean of all, below which its expert is called starving."""
FEW_IMAGES = 1000
"""Number of images below which an expert is called starving whatever the others have."""
THRESHOLDS = {
    "catch-all: images, as a multiple of the mean of the other clusters, above": CATCH_ALL,
    "starving: images, as a multiple of the mean of all clusters, below": STARVING,
    "starving: images below": FEW_IMAGES,
    "not apart: mean silhouette below": 0.0,
}


@dataclass(frozen=True)
class ClusterFacts:
    """Facts about one cluster; what cannot be known of the data, or of the partition, is None or empty."""

    __pydantic_config__: ClassVar = checked_reads.ALLOW_EXTRA_KEYS

    images: int
    share: float
    silhouette: float | None = None
    """Mean of a sample of its images."""
    neighbour: int | None = None
    """Cluster that is the nearest but their own to most of them."""
    class_entropy: float | None = None
    """Entropy of its classes in nats."""
    classes: list[tuple[str, float]] = field(default_factory=list)
    """Its most frequent classes, with their shares."""
    words: list[tuple[str, float, float]] = field(default_factory=list)
    """Words of its captions that the others lack: the word, and the shares of captions that have it here, elsewhere."""
    captions: list[str] = field(default_factory=list)
    """Some captions, of its most typical images where these are known."""
    shown: dict[str, list[int]] = field(default_factory=dict)
    """Numbers of the training samples that are shown, by kind."""


@dataclass(frozen=True)
class PartitionFacts:
    """Facts about all clusters together, and about each; the file has their warnings, too."""

    __pydantic_config__: ClassVar = checked_reads.ALLOW_EXTRA_KEYS

    images: int
    clusters: list[ClusterFacts]
    largest_over_mean: float
    effective_clusters: float
    """Number of clusters of equal size that would be as even: exp of the entropy of the shares."""
    class_information: float | None
    """Normalised mutual information of clusters and classes; None without classes."""
    silhouette: float | None
    """Mean over all images, estimated by a sample of each cluster."""
    sampled: int
    """Number of images of that sample."""
    compared: str
    """Vectors that Euclidean distances compare."""
    left_out: str
    """Reason why distances are missing; empty if they exist."""
    remedy: str
    """Settings to change if a training should not start with these clusters."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for counts that do not fit one another, and samples that the data do not have."""
        checked_reads.require_counts(self.images, self.sampled, *(cluster.images for cluster in self.clusters))
        if not self.clusters or sum(cluster.images for cluster in self.clusters) != self.images:
            raise ValueError("clusters: do not add up to the images")
        shown = [number for cluster in self.clusters for numbers in cluster.shown.values() for number in numbers]
        if not all(0 <= number < self.images for number in shown):
            raise ValueError("clusters: show a sample that the data do not have")

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file: the facts, the warnings, and the thresholds of these."""
        return asdict(self) | {"warnings": self.warnings(), "thresholds": THRESHOLDS}

    def warnings(self) -> list[str]:
        """List reasons not to train experts on these clusters, a sentence each."""
        mean, warnings = self.images / len(self.clusters), []
        for number, cluster in enumerate(self.clusters):
            who, alone = f"Cluster {number}", len(self.clusters) == 1
            others = mean if alone else (self.images - cluster.images) / (len(self.clusters) - 1)
            if cluster.images > CATCH_ALL * others:
                warnings.append(
                    f"{who} is a catch-all: its {cluster.share:.1%} of the images are {cluster.images / others:.2f}"
                    f" times what the others have on average (the threshold is {CATCH_ALL:g})"
                )
            if cluster.images < STARVING * mean:
                warnings.append(
                    f"{who} is starving: its {cluster.images:,} images are {cluster.images / mean:.2f} of the mean"
                    f" (the threshold is {STARVING:g}), and its expert sees each of them so much more often"
                )
            if cluster.silhouette is not None and cluster.silhouette < 0:
                warnings.append(
                    f"{who} is not apart: on average its images are closer to cluster {cluster.neighbour} or another"
                    f" one than to each other (mean silhouette {cluster.silhouette:.3f}, the threshold is 0)"
                )
        return warnings + self._few()

    def _few(self) -> list[str]:
        """Warn of clusters with few images, all in one sentence: of a small data set these may be all."""
        few = [number for number, cluster in enumerate(self.clusters) if cluster.images < FEW_IMAGES]
        if not few:
            return []
        sizes = sorted({self.clusters[number].images for number in few})
        who = f"Cluster {few[0]} is" if len(few) == 1 else f"Clusters {', '.join(map(str, few))} are"
        count = " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
        limit = f"the threshold is {FEW_IMAGES:,}"
        return [f"{who} starving: {count} images are few for one network ({limit}), which may learn them by heart"]
