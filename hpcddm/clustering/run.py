"""Clusters of another run: its fitted partition gives new images the clusters that it gave the images of that run."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np

from hpcddm.clustering.base import Clustering, Workspace, convert_errors
from hpcddm.clustering.partition import Partition, load_arrays, read_arrays
from hpcddm.clustering.samples import Samples
from hpcddm.config import variants
from hpcddm.config.clustering import ClusteringSettings
from hpcddm.config.schema import PathSetting
from hpcddm.data.columns import Numbers
from hpcddm.errors import UserError, require
from hpcddm.files import atomic, checked_reads
from hpcddm.runs import manifest
from hpcddm.runs.files import ENSEMBLE, PARTITION, PUBLISHED_PARTITION
from hpcddm.runs.published_files import is_published, published_file
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CLUSTER

ADVICE = "fetch it again, make it again there, or name another run in cluster.clustering.run"


class RunClusteringSettings(ClusteringSettings):
    """Folder of the other run, or of a published ensemble, as `run`.

    Submit fills in the rest, which is all that later stages need of it.
    """

    is_fitted: ClassVar[bool] = False

    run: PathSetting
    content_hash: str | None = None
    """The SHA-256 of the partition's file, so that another partition is never taken for this one."""
    fitted_by: ClusteringSettings | None = None
    """The clustering that fitted the partition."""

    @property
    def needs_features(self) -> bool:  # type: ignore[override]
        """True where the other clustering needs features."""
        return self.fitted_by is None or self.fitted_by.needs_features

    @contextmanager
    def open_partition(self) -> Iterator[tuple[Path, BinaryIO]]:
        """Open the partition's file; yield its path and itself.

        Raises `UserError` unless its bytes are those that its manifest or `ensemble.json` states, and those that submit
        filled in.
        """
        if is_published(Path(self.run)):
            source, (path, stated) = ENSEMBLE, published_file(Path(self.run), PUBLISHED_PARTITION)
        else:
            source, folder = "its manifest", RunDir(Path(self.run)).unit(CLUSTER)
            path, stated = folder / PARTITION, str(manifest.recorded_digest(folder, PARTITION))
        try:
            descriptor = checked_reads.open_regular(path)
        except FileNotFoundError:
            raise UserError(f"{path}: is missing; {ADVICE}") from None
        with open(descriptor, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            require(digest == stated, f"{path}: its bytes are not those of {source}; {ADVICE}")
            atomic.require_submitted(path, self.content_hash, digest)
            yield path, file

    def check_file(self, num_clusters: int) -> None:
        """Raise `UserError` for a partition that is damaged."""
        with self.open_partition():
            pass

    def remedy(self, num_clusters: int) -> str:
        """Name the run, and the images."""
        return "run: a run whose clusters these images have too, or clusters that are fitted to them"


class RunClustering(Clustering[RunClusteringSettings]):
    """A partition that is read, and not fitted."""

    def fit(self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace) -> Partition:
        """Read the partition of the other run; raises `UserError` for one that is damaged, or not the submitted one."""
        with self.settings.open_partition() as (path, file), convert_errors(path, ADVICE):
            if path.name == PARTITION:
                return self.load(read_arrays(path, file, ADVICE))
            arrays, digest = load_arrays(path)
            atomic.require_submitted(path, self.settings.content_hash, digest)
            return self.load(arrays)

    def load(self, arrays: dict[str, np.ndarray]) -> Partition:
        if self.settings.fitted_by is None:
            raise ValueError("its clustering is unknown")
        return variants.create(Clustering, self.settings.fitted_by).load(arrays)
