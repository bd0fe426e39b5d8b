"""Settings that clusterings have in common in an experiment's YAML."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hpcddm.config.schema import Positive, VariantSettings

Metric = Literal["cosine", "euclidean"]


class ClusteringSettings(VariantSettings):
    """Settings of a clustering of the training images."""

    package: ClassVar[str] = "clustering"
    needs_features: ClassVar[bool] = True
    """False for a clustering that looks at no features: then nothing is encoded."""
    is_fitted: ClassVar[bool] = True
    """False for a partition that is taken as it is: then it is not a function of the run's samples."""
    takes_new_samples: ClassVar[bool] = True
    """False for clusters that follow from a sample's number or key, which mean nothing in another run."""

    @property
    def fits_features(self) -> bool:
        """True where the fit reads features."""
        return self.is_fitted and self.needs_features

    @property
    def numbers_classes(self) -> bool:
        """True where a key lists classes by their numbers."""
        return False

    def check_file(self, num_clusters: int) -> None:
        """Check the file that the stage cluster reads, where there is one, before anything is submitted."""

    def remedy(self, num_clusters: int) -> str:
        """Say what to change where clusters are too uneven, or not apart, to begin a training with."""
        features = ", or another encoder" if self.needs_features else ""
        return f"another number of experts, another seed{features}"


class TwoStageSettings(ClusteringSettings):
    """Fine clusters by Lloyd's k-means, run from `restarts` starts and then merged into coarse clusters.

    By `cosine`, features are centred and scaled to length one; by `euclidean`, they are centred. `max_share` is the
    largest share of the samples in a coarse cluster, such as 1.5 / K; without it sizes are as the data have them.
    """

    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"max_share", "metric"})

    fine_clusters: Positive = 1024
    iterations: Positive = 50
    restarts: Positive = 5
    metric: Metric = "cosine"
    max_share: Annotated[float, Field(gt=0, le=1)] | None = None

    def check(self, experiment: Any) -> None:
        """Raise ValueError when there are fewer fine clusters than experts, or experts cannot share all samples."""
        if self.fine_clusters < experiment.cluster.experts:
            raise ValueError(f"fine {self.fine_clusters} is less than experts {experiment.cluster.experts}")
        if self.max_share is not None and self.max_share * experiment.cluster.experts < 1:
            raise ValueError(f"max_share {self.max_share:g}: {experiment.cluster.experts} experts leave samples over")

    def remedy(self, num_clusters: int) -> str:
        """Name the bound of a cluster's share, or, where there is one, other clusters."""
        bound = f"max_share: {1.5 / num_clusters:.3g} bounds every cluster at 1.5 / K, or "
        return (bound if self.max_share is None else "") + super().remedy(num_clusters)
