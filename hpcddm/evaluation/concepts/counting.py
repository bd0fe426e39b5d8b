"""Counts of the concepts in every cluster; counts of several ranges of samples add up exactly."""

from dataclasses import dataclass, fields
from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Int64, Integer

from hpcddm.evaluation.concepts.presence import IMAGE, JOINT, KINDS, TEXT, Pairs
from hpcddm.files import atomic, hdf5


@dataclass
class Counts:
    """Numbers of training samples by concept and cluster.

    text, image, joint: (V, K), samples whose captions name a concept, whose images show it, and both.
    """

    text: Int64[np.ndarray, "v k"]
    image: Int64[np.ndarray, "v k"]
    joint: Int64[np.ndarray, "v k"]
    samples: Int64[np.ndarray, " k"]
    """All samples."""

    @classmethod
    def zeros(cls, concepts: int, clusters: int) -> "Counts":
        """Return counts of nothing."""
        text, image, joint = (np.zeros((concepts, clusters), np.int64) for _ in KINDS)
        return cls(text, image, joint, np.zeros(clusters, np.int64))

    def add(self, pairs: dict[str, Pairs], clusters: Integer[np.ndarray, " n"]) -> None:
        """Count some samples; pairs: of `Presence`, by kind; clusters: of all of them."""
        own = clusters.astype(np.int64)
        size, num_clusters = self.text.shape
        for kind in KINDS:
            both = pairs[kind].concepts * num_clusters + own[pairs[kind].samples]
            self.table(kind)[:] += np.bincount(both, minlength=size * num_clusters).reshape(size, num_clusters)
        self.samples += np.bincount(own, minlength=num_clusters)

    def table(self, kind: str) -> Int64[np.ndarray, "v k"]:
        """Return the counts of one kind by concept and cluster."""
        tables = {TEXT: self.text, IMAGE: self.image, JOINT: self.joint}
        return tables[kind]

    def homes(self, kind: str) -> Int64[np.ndarray, " v"]:
        """Return the home of every concept: the cluster that has it most often, of several the one with most of it.

        0 for a concept that no sample has.
        """
        own = self.table(kind)
        shares = own / np.maximum(self.samples, 1)
        # Shares are at most 1, so that half of one decides between equal counts and never against a greater one.
        return (own + 0.5 * shares).argmax(1)

    def write(self, path: Path) -> None:
        """Write them as HDF5, a dataset of each."""
        with atomic.replacing(path, durable=False) as staged, h5py.File(staged, "w") as file:
            for field in fields(self):
                file.create_dataset(field.name, data=getattr(self, field.name))

    @classmethod
    def read(cls, path: Path) -> "Counts":
        """Read the counts from a file that `write` has written."""
        with hdf5.open_checked(path) as file:
            return cls(**{field.name: file[field.name][()] for field in fields(cls)})
