"""Bases of the clusterings: they fit a partition of the data to training samples, most of them to features."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from hpcddm.clustering.partition import REDO, Partition, read_arrays
from hpcddm.clustering.samples import Samples
from hpcddm.config.experiment import Experiment
from hpcddm.config.variants import S, Variant
from hpcddm.data.columns import Numbers
from hpcddm.errors import UserError
from hpcddm.errors.printing import printable


@dataclass(frozen=True)
class Workspace:
    """Place and listener of a fit that takes long."""

    folder: Path | None = None
    """Folder for files that are gone at its end; None for the machine's own."""
    advance: Callable[[int, int], None] = lambda done, total: None
    """Is told how much is done, and of how much, again and again; it may raise to stop the fit."""


class NotFinite(ValueError):
    """Features of a sample are NaN or infinite; place: among those that are fitted."""

    def __init__(self, place: int) -> None:
        super().__init__(f"features of sample {place} contain NaN or infinity")
        self.place = place


@contextmanager
def usable(path: Path, advice: str) -> Iterator[None]:
    """Raise what arrays of another partition lead to as a `UserError` that names their file."""
    try:
        yield
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        raise UserError(f"{path}: not a partition of this clustering ({printable(error)}); {advice}") from None


class Clustering(Variant[S]):
    """A clustering that cuts the data into clusters, one for each expert."""

    @abstractmethod
    def fit(self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace) -> Partition:
        """Fit a partition into `num_clusters` clusters to some training samples: all, or of very many some.

        Raises ValueError or `UserError` for samples that cannot be clustered so.
        """

    @abstractmethod
    def load(self, arrays: dict[str, np.ndarray]) -> Partition:
        """Make a fitted partition again from its `arrays()`."""

    def read(self, path: Path, experiment: Experiment) -> Partition:
        """Read a fitted partition from its file; raises `UserError` naming one that is missing or not usable.

        experiment: the one whose clusters it makes, as many as that has experts, of the features that it encodes.
        """
        encoder = experiment.encode.encoder
        dimensions = encoder.dimensions(experiment.data) if experiment.cluster.clustering.needs_features else 0
        with usable(path, REDO):
            partition = self.load(read_arrays(path))
            partition.require(experiment.cluster.experts, dimensions)
            return partition


class FeatureClustering(Clustering[S]):
    """Clustering by features alone, which need not be those of samples; they are in memory together."""

    def fit(self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace) -> Partition:
        return self.fit_features(samples.features(numbers), num_clusters, seed)

    @abstractmethod
    def fit_features(self, features: Float[np.ndarray, "n d"], num_clusters: int, seed: int) -> Partition:
        """Cluster features into `num_clusters` non-empty clusters; the number of threads changes nothing.

        Raises ValueError for features that cannot be clustered so, such as those that are not finite.
        """
