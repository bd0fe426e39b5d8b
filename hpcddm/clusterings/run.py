"""Clusters of another run: its fitted partition gives new images the clusters that it gave the images of that run."""

import hashlib
import tempfile
from pathlib import Path
from typing import ClassVar

import numpy as np

from hpcddm import plugins
from hpcddm.clusterings.base import Clustering, Workspace, usable
from hpcddm.clusterings.partition import Partition, read_arrays
from hpcddm.clusterings.samples import Samples
from hpcddm.clusterings.settings import ClusteringSettings
from hpcddm.data.columns import Numbers
from hpcddm.rundir import atomic, manifest
from hpcddm.rundir.layout import RunDir
from hpcddm.schema import PathSetting


class Settings(ClusteringSettings):
    """Folder of the other run, as `of`; the rest is filled in by submit, and is all that later stages need of it."""

    is_fitted: ClassVar[bool] = False

    of: PathSetting
    content: str | None = None
    """The SHA-256 of the partition's file, so that another partition is never taken for this one."""
    fitted_by: ClusteringSettings | None = None
    """The clustering that fitted the partition."""

    @property
    def needs_features(self) -> bool:  # type: ignore[override]
        """True where the other clustering needs features."""
        return self.fitted_by is None or self.fitted_by.needs_features

    def partition(self) -> tuple[Path, bytes]:
        """Read the partition's file; raises `UserError` unless its bytes are those that its manifest states."""
        # The settings are read while experiments, which stages need, are still being defined.
        from hpcddm.pipeline.cluster import PARTITION
        from hpcddm.pipeline.keys import CLUSTER

        folder = RunDir(Path(self.of)).unit(CLUSTER)
        return folder / PARTITION, manifest.intact(folder, PARTITION)

    def check_file(self, num_clusters: int) -> None:
        """Raise `UserError` for a partition that is damaged."""
        self.partition()

    def remedy(self, num_clusters: int) -> str:
        """Name the run, and the images."""
        return "of: a run whose clusters these images have too, or clusters that are fitted to them"


class Run(Clustering[Settings]):
    """A partition that is read, and not fitted."""

    def fit(self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace) -> Partition:
        """Read the partition of the other run; raises `UserError` for one that is damaged, or not the submitted one."""
        path, content = self.settings.partition()
        atomic.require_submitted(path, self.settings.content, hashlib.sha256(content).hexdigest())
        # The bytes that were hashed, whatever becomes of the other run's file meanwhile.
        with tempfile.NamedTemporaryFile(dir=workspace.folder) as copy, usable(path, "name another run"):
            copy.write(content)
            copy.flush()
            return self.load(read_arrays(path, copy))

    def load(self, arrays: dict[str, np.ndarray]) -> Partition:
        if self.settings.fitted_by is None:
            raise ValueError("its clustering is unknown")
        return plugins.create(Clustering, self.settings.fitted_by).load(arrays)
