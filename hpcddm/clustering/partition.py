"""Partition of the data: the rule that gives every sample its cluster, and its file."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import h5py
import numpy as np
from jaxtyping import Float, Float64, Int64

from hpcddm.clustering.samples import Samples
from hpcddm.data.columns import Numbers
from hpcddm.errors import UserError, require
from hpcddm.files import atomic, hdf5
from hpcddm.files.reading import Unreadable

REDO = "submit again with --redo cluster"
"""Next step where the partition of a run cannot be used."""


class Partition(ABC):
    """A rule that gives every sample one of K clusters."""

    figures: Mapping[str, float] = MappingProxyType({})
    """What the fit measured, for its manifest and log; nothing for a partition that was loaded."""

    @abstractmethod
    def assign(self, samples: Samples, numbers: Numbers) -> Int64[np.ndarray, " n"]:
        """Return the clusters of some samples, 0 to K - 1, independent of how samples are batched."""

    def require(self, num_clusters: int, dimensions: int) -> None:  # noqa: B027
        """Raise ValueError where its arrays are not those of so many clusters, of features of so many dimensions."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that define the partition, by name; `Clustering.load` makes the same one of them."""


class FeaturePartition(Partition):
    """A rule that looks at a sample's features alone."""

    @property
    def points_text(self) -> str:
        """Describe the points that `points` returns."""
        return "features"

    def assign(self, samples: Samples, numbers: Numbers) -> Int64[np.ndarray, " n"]:
        return self.assign_features(samples.features(numbers))

    @abstractmethod
    def assign_features(self, features: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        """Return the clusters of samples with these features, each independent of the others."""

    @abstractmethod
    def distances_features(self, features: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n k"]:
        """Return the squared distance of samples from every cluster, each independent of the other samples."""

    def points(self, features: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
        """Return the points whose Euclidean distances it goes by: the features, unless it compares them otherwise."""
        return features.astype(np.float64)


def require_clusters(values: np.ndarray, num_clusters: int) -> None:
    """Raise ValueError unless these are numbers of clusters, one or more, in one dimension."""
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
        raise ValueError(f"clusters are {values.dtype} {list(values.shape)}, not a list of numbers")
    if not 0 <= values.min() <= values.max() < num_clusters:
        raise ValueError(f"has clusters {values.min()} to {values.max()}, and the experiment {num_clusters}")


def write_arrays(path: Path, partition: Partition) -> None:
    """Write the arrays that define a partition as HDF5."""
    with atomic.replacing(path, durable=False) as staged, h5py.File(staged, "w") as file:
        for name, values in partition.arrays().items():
            file.create_dataset(name, data=values)


def read_arrays(path: Path, plain: BinaryIO | None = None, advice: str = REDO) -> dict[str, np.ndarray]:
    """Read the arrays that define a partition; raises `UserError` naming a file that is missing or not usable.

    plain: the file, where it is open already; advice: the next step.
    """
    try:
        with hdf5.opened(path) if plain is None else hdf5.checked(path, plain) as file:
            arrays = {name: np.asarray(dataset[()]) for name, dataset in hdf5.datasets(file)}
    except (FileNotFoundError, Unreadable) as error:
        reason = getattr(error, "reason", "it is missing")
        raise UserError(f"{path}: no readable partition ({reason}); {advice}") from None
    broken = next((name for name, values in arrays.items() if not np.isfinite(values).all()), None)
    require(broken is None, f"{path}: '{broken}' is not finite; {advice}")
    return arrays
