"""Stage cluster: the rule that assigns every sample to one of K clusters."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.fingerprints import feature_settings
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import TRAIN, range_keys
from hpcddm.runs.unit_keys import CATALOG, CLUSTER

MAX_FITTED = 1 << 20
"""Maximum number of samples for the fit; from more samples, this many are drawn at random."""


class ClusterStage(Stage):
    """Stage with one unit, which fits the partition to training images, or uses a given partition."""

    name = "cluster"
    reads = ("catalog", "encode")
    runs_at_every_site = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [CLUSTER]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog and, where the fit needs them, the features of the training images."""
        fits_features = experiment.cluster.clustering.fits_features
        return [CATALOG, *(range_keys(experiment, "encode", (TRAIN,)) if fits_features else [])]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Include no image for a given partition."""
        return {} if experiment.cluster.clustering.is_fitted else {CATALOG: ""}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include clustering, number of experts and seed; for a given partition, the features that fit it."""
        own = experiment.cluster.clustering
        features = feature_settings(experiment) if own.needs_features and not own.is_fitted else {}
        return {"cluster": settings_to_hash(experiment.cluster), "seed": experiment.seed} | features

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the centroids, and the copy of the fitted features that exists while the unit runs."""
        sample = 4 * experiment.encode.encoder.dimensions(experiment.data)
        fitted = min(images["train"], MAX_FITTED) if experiment.cluster.clustering.fits_features else 0
        return DiskSpace(1024 * sample, fitted * sample, 2)
