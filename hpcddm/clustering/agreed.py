"""Clusters of a collaboration's contract: every site takes the coordinator's partition as it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np

from hpcddm.clustering.base import Clustering, Workspace, convert_errors
from hpcddm.clustering.partition import Partition, load_arrays
from hpcddm.clustering.samples import Samples
from hpcddm.config import variants
from hpcddm.config.clustering import ClusteringSettings
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import PathSetting
from hpcddm.data.columns import Numbers
from hpcddm.files import atomic

ADVICE = "ask the coordinator for the contract again"


class AgreedClusteringSettings(ClusteringSettings):
    """Partition of a contract; `hpcddm submit --contract` fills in all of it."""

    is_fitted: ClassVar[bool] = False

    partition: PathSetting
    """File of the arrays, in a run's `contract/`."""
    content_hash: str
    """Its SHA-256, as the contract states it."""
    fitted_by: ClusteringSettings
    """The clustering that fitted the partition."""

    @property
    def needs_features(self) -> bool:  # type: ignore[override]
        """True where the other clustering needs features."""
        return self.fitted_by.needs_features

    def remedy(self, num_clusters: int) -> str:
        """Name the contract."""
        return "the contract, which the coordinator makes"


class AgreedClustering(Clustering[AgreedClusteringSettings]):
    """A partition that is read, and not fitted."""

    def fit(self, samples: Samples, numbers: Numbers, num_clusters: int, seed: int, workspace: Workspace) -> Partition:
        """Read the partition; raises `UserError` for one that is damaged, or not the agreed one."""
        with self._opened() as arrays:
            return self.load(arrays)

    def check(self, experiment: Experiment) -> None:
        """Raise `UserError` for a partition that is damaged, not the agreed one, or not one for the experiment."""
        with self._opened() as arrays:
            self.load_for(experiment, arrays)

    @contextmanager
    def _opened(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the arrays by name, with errors about them converted."""
        path = Path(self.settings.partition)
        with convert_errors(path, ADVICE):
            arrays, held = load_arrays(path)
            atomic.require_submitted(path, self.settings.content_hash, held)
            yield arrays

    def load(self, arrays: dict[str, np.ndarray]) -> Partition:
        return variants.create(Clustering, self.settings.fitted_by).load(arrays)
