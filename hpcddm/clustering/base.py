"""Bases of the clusterings, which fit a partition of the data to training samples, mostly to their features."""

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
    """Temporary folder and progress callback of a long fit."""

    folder: Path | None = None
    """Folder for temporary files; None for the machine's default."""
    advance: Callable[[int, int], None] = lambda done, total: None
    """Called repeatedly with the work done and the total; it may raise to stop the fit."""


class NotFinite(ValueError):
    """Error for a sample with NaN or infinite features.

    Args:
        place: Position of the sample among the fitted samples.
    """

    def __init__(self, place: int) -> None:
        super().__init__(f"features of sample {place} contain NaN or infinity")
        self.place = place


@contextmanager
def convert_errors(path: Path, advice: str) -> Iterator[None]:
    """Convert errors caused by unsuitable arrays to a `UserError` that names their file.

    Args:
        path: File of the arrays.
        advice: Next step, for the error.
    """
    try:
        yield
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        raise UserError(f"{path}: not a partition of this clustering ({printable(error)}); {advice}") from None


class Clustering(Variant[S]):
    """Clustering that divides the data into clusters, one for each expert."""

    @abstractmethod
    def fit(self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace) -> Partition:
        """Fit a partition to training samples.

        Args:
            samples: Samples of the training split.
            numbers: (N,) numbers of the samples to fit; of very large data a subset.
            num_clusters: Number K of clusters.
            seed: Seed of the experiment.
            workspace: Temporary folder and progress callback.

        Returns:
            Partition into K clusters.

        Raises:
            ValueError: The samples cannot be clustered.
            UserError: The samples cannot be clustered; the message says how to change the experiment or the data.
        """

    @abstractmethod
    def load(self, arrays: dict[str, np.ndarray]) -> Partition:
        """Restore a fitted partition.

        Args:
            arrays: Result of the partition's `arrays()`.
        """

    def read(self, path: Path, experiment: Experiment) -> Partition:
        """Read a fitted partition from its file.

        Args:
            path: File of the partition.
            experiment: Experiment that determines the number of clusters and the dimension of the features.

        Raises:
            UserError: The file is missing, or its partition does not match the experiment; the message names the file.
        """
        with convert_errors(path, REDO):
            return self.load_for(experiment, read_arrays(path))

    def load_for(self, experiment: Experiment, arrays: dict[str, np.ndarray]) -> Partition:
        """Restore a partition that fits an experiment; raise what `convert_errors` converts for another one."""
        encoder = experiment.encode.encoder
        dimensions = encoder.dimensions(experiment.data) if experiment.cluster.clustering.needs_features else 0
        partition = self.load(arrays)
        if partition.arrays().keys() != arrays.keys():
            raise ValueError(f"has the arrays {', '.join(arrays)}, not {', '.join(partition.arrays())}")
        partition.require(experiment.cluster.experts, dimensions)
        return partition


class FeatureClustering(Clustering[S]):
    """Clustering by features alone; all features are in memory at once.

    Examples:
        >>> from hpcddm.clustering.kmeans import KMeans, KMeansSettings
        >>> features = np.array([[1, 0], [2, 0], [0, 1], [0, 3]], np.float32)
        >>> clustering = KMeans(KMeansSettings(name="kmeans", fine_clusters=4, metric="euclidean"))
        >>> partition = clustering.fit_features(features, num_clusters=2, seed=0)
        >>> partition.assign_features(features)
        array([1, 1, 0, 0])
    """

    def fit(self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace) -> Partition:
        """Fit a partition to the features of some samples; arguments are those of `Clustering.fit`."""
        return self.fit_features(samples.features(numbers), num_clusters, seed)

    @abstractmethod
    def fit_features(self, features: Float[np.ndarray, "n d"], num_clusters: int, seed: int) -> Partition:
        """Fit a partition to features; the result does not depend on the number of threads.

        Args:
            features: (N, D).
            num_clusters: Number K of clusters, none of them empty.
            seed: Seed of the experiment.

        Returns:
            Partition into K clusters.

        Raises:
            ValueError: The features cannot be clustered, for example because some are not finite.
        """
