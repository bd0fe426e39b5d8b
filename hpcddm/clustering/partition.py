"""Partition of the data: the rule that assigns every sample to a cluster, and its file."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import h5py
import numpy as np
from jaxtyping import Float, Float64, Int64
from safetensors.numpy import save_file

from hpcddm.clustering.samples import Samples
from hpcddm.data.columns import Numbers
from hpcddm.errors import UserError, require
from hpcddm.files import atomic, hdf5
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.tensor_file import VALUE_BYTES, TensorFile

REDO = "submit again with --redo cluster"
"""Next step if the partition of a run cannot be used."""


class Partition(ABC):
    """A rule that assigns every sample to one of K clusters."""

    figures: Mapping[str, float] = MappingProxyType({})
    """Measurements of the fit, for its manifest and log; empty for a loaded partition."""

    @abstractmethod
    def assign(self, samples: Samples, numbers: Numbers) -> Int64[np.ndarray, " n"]:
        """Assign some samples to clusters; the result does not depend on how samples are batched.

        Args:
            samples: Samples of a split.
            numbers: (N,) numbers of samples.

        Returns:
            Cluster numbers 0 ... K - 1, (N,).
        """

    def require(self, num_clusters: int, dimensions: int) -> None:  # noqa: B027
        """Check the arrays of the partition.

        Args:
            num_clusters: Expected number of clusters.
            dimensions: Expected dimension of the features; 0 without features.

        Raises:
            ValueError: The arrays have another number of clusters or another dimension.
        """

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that define the partition, by name; `Clustering.load` restores it from them."""


class FeaturePartition(Partition):
    """A rule that depends on a sample's features alone."""

    @property
    def describe_points(self) -> str:
        """Description of the points that `points` returns."""
        return "features"

    def assign(self, samples: Samples, numbers: Numbers) -> Int64[np.ndarray, " n"]:
        """Assign some samples to clusters by their features."""
        return self.assign_features(samples.features(numbers))

    @abstractmethod
    def assign_features(self, features: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        """Assign features to clusters, each independently of the others.

        Args:
            features: (N, D).

        Returns:
            Cluster numbers 0 ... K - 1, (N,).
        """

    @abstractmethod
    def distances_features(self, features: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n k"]:
        """Return the squared distances of samples from every cluster, each independent of the other samples.

        Args:
            features: (N, D).

        Returns:
            Squared distances, (N, K).
        """

    def points(self, features: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
        """Return the points whose Euclidean distances the partition compares; by default the features.

        Args:
            features: (N, D).

        Returns:
            Points, (N, D).
        """
        return features.astype(np.float64)


def require_clusters(values: np.ndarray, num_clusters: int) -> None:
    """Check that an array has cluster numbers.

    Args:
        values: Array that should have cluster numbers, (M,) with M > 0.
        num_clusters: Number of clusters.

    Raises:
        ValueError: The array has another form or other values.
    """
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
        raise ValueError(f"clusters are {values.dtype} {list(values.shape)}, not a list of numbers")
    if not 0 <= values.min() <= values.max() < num_clusters:
        raise ValueError(f"has clusters {values.min()} to {values.max()}, and the experiment {num_clusters}")


def require_every_cluster(values: np.ndarray, num_clusters: int) -> None:
    """Check that an array has every cluster number; arguments and errors are those of `require_clusters`."""
    require_clusters(values, num_clusters)
    missing = np.setdiff1d(np.arange(num_clusters), values)
    if len(missing):
        raise ValueError(f"lacks cluster {missing[0]}, and the experiment has {num_clusters}")


def write_arrays(path: Path, partition: Partition) -> None:
    """Write the arrays that define a partition to an HDF5 file."""
    with atomic.replacing(path, durable=False) as staged, h5py.File(staged, "w") as file:
        for name, values in partition.arrays().items():
            file.create_dataset(name, data=values)


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """Read the arrays that `save_arrays` wrote, and the SHA-256 of their file."""
    with TensorFile(path) as file:
        arrays = {
            name: np.empty(spec.shape, f"<{spec.dtype[0].lower()}{VALUE_BYTES[spec.dtype]}")
            for name, spec in file.forms.items()
        }
        return arrays, file.read({name: values.reshape(-1).view(np.uint8).data for name, values in arrays.items()})


def save_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Write the arrays that define a partition as safetensors, for others."""
    # Not ascontiguousarray, which gives single numbers a dimension.
    save_file({name: np.array(values, order="C") for name, values in arrays.items()}, path)


def read_arrays(path: Path, plain: BinaryIO | None = None, advice: str = REDO) -> dict[str, np.ndarray]:
    """Read the arrays that define a partition.

    Args:
        path: HDF5 file of the partition.
        plain: The file if it is already open.
        advice: Next step, for the error.

    Returns:
        Arrays by name.

    Raises:
        UserError: The file is missing, damaged, or has values that are not finite; the message names it.
    """
    try:
        with hdf5.open_checked(path) if plain is None else hdf5.open_checked_stream(path, plain) as file:
            arrays = {name: np.asarray(dataset[()]) for name, dataset in hdf5.list_datasets(file)}
    except (FileNotFoundError, Unreadable) as error:
        reason = getattr(error, "reason", "it is missing")
        raise UserError(f"{path}: no readable partition ({reason}); {advice}") from None
    broken = next((name for name, values in arrays.items() if not np.isfinite(values).all()), None)
    require(broken is None, f"{path}: '{broken}' is not finite; {advice}")
    return arrays
