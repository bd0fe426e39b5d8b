"""Clusters from a table, by the keys of the samples: CSV, JSON lines or parquet."""

from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Int64, UInt16, UInt64

from hpcddm.clustering.base import Clustering, Workspace
from hpcddm.clustering.partition import Partition, require_clusters
from hpcddm.clustering.samples import Samples
from hpcddm.config.clustering import ClusteringSettings
from hpcddm.config.data import TableSettings
from hpcddm.data.columns import Numbers
from hpcddm.data.sample_keys import hash_of
from hpcddm.errors import UserError, require
from hpcddm.files import atomic
from hpcddm.sources.tables import tables

ROW = np.dtype([("hash", "<u8"), ("cluster", "<u2")])


class FileClusteringSettings(ClusteringSettings):
    """Table with a row for every sample, held-out ones too, and its column of clusters, numbered from 0."""

    needs_features: ClassVar[bool] = False
    takes_new_samples: ClassVar[bool] = False

    table: TableSettings
    column: str = "cluster"

    def check_file(self, num_clusters: int) -> None:
        """Raise `UserError` naming the first row whose cluster is not one."""
        from hpcddm.sources.tables.tables import Table

        for _ in Table(Path(self.table.file), self.table.key).numbers(self.column, num_clusters):
            pass

    def remedy(self, num_clusters: int) -> str:
        """Name the table."""
        return "table: a file with other clusters"


class ClusterOfKey(Partition):
    """Table of the keys' hashes, so that nothing behind the fit reads the file.

    hashes: ascending, 64 bits of each key; two of 400 million keys have the same one with a probability of 0.4 %,
    which the fit then refuses as a duplicate key. clusters: clusters of the keys; path, first_key: named in
    errors.
    """

    def __init__(
        self, hashes: UInt64[np.ndarray, " n"], clusters: UInt16[np.ndarray, " n"], path: Path, first_key: str = ""
    ) -> None:
        self.hashes, self.clusters, self.path, self.first_key = hashes, clusters, path, first_key

    def assign(self, samples: Samples, numbers: Numbers) -> Int64[np.ndarray, " n"]:
        """Look the keys up; raises `UserError` naming the first that the table lacks."""
        keys = samples.keys(numbers)
        hashes = np.fromiter(map(hash_of, keys), np.uint64, len(keys))
        rows = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        missing = np.flatnonzero(self.hashes[rows] != hashes)
        if len(missing):
            lacking = f"no cluster for {len(missing)} of {len(keys)} samples, the first is {keys[missing[0]]}"
            of_file = f"; the first key in the file is {self.first_key}" * bool(self.first_key)
            raise UserError(f"{self.path}: {lacking}; every sample needs one, held-out ones too{of_file}")
        return self.clusters[rows].astype(np.int64)

    def require(self, num_clusters: int, dimensions: int) -> None:
        require_clusters(self.clusters, num_clusters)
        if self.hashes.shape != self.clusters.shape or self.hashes.dtype != np.uint64:
            raise ValueError(f"hashes are {self.hashes.dtype} {list(self.hashes.shape)} for {len(self.clusters)} keys")
        if (self.hashes[1:] <= self.hashes[:-1]).any():
            raise ValueError("hashes do not ascend")

    def arrays(self) -> dict[str, np.ndarray]:
        return {"hashes": self.hashes, "clusters": self.clusters}


class FileClustering(Clustering[FileClusteringSettings]):
    """Clusters made elsewhere; rows whose key belongs to no sample are ignored."""

    def fit(
        self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace
    ) -> ClusterOfKey:
        """Read the table, and look up the keys of the samples.

        Raises `UserError` naming the file when it is not the submitted one, has a row without a valid cluster or a
        duplicate key, or lacks a sample.
        """
        path, column = Path(self.settings.table.file), self.settings.column
        table = tables.Table(path, self.settings.table.key)
        atomic.require_submitted(path, self.settings.table.content_hash, tables.content_hash(path))
        rows = np.fromiter(((hash_of(key), cluster) for key, cluster in table.numbers(column, num_clusters)), ROW)
        require(len(rows) > 0, f"{path}: has no row; write one for every sample")
        rows = rows[np.argsort(rows["hash"])]
        hashes = np.ascontiguousarray(rows["hash"])
        repeated = hashes[1:][hashes[1:] == hashes[:-1]]
        if len(repeated):
            key = next(key for key, _ in table.numbers(column, num_clusters) if hash_of(key) == repeated[0])
            raise UserError(f"{path}: {key} appears twice; remove one")
        clusters = np.ascontiguousarray(rows["cluster"])
        partition = ClusterOfKey(hashes, clusters, path, table.first_key() or "")
        partition.assign(samples, numbers)
        return partition

    def load(self, arrays: dict[str, np.ndarray]) -> ClusterOfKey:
        return ClusterOfKey(arrays["hashes"], arrays["clusters"], Path(self.settings.table.file))
