"""Stage cluster: the rule by which every sample gets one of K clusters."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline.fingerprints import feature_settings
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import TRAIN, range_keys
from hpcddm.runs.unit_keys import CATALOG, CLUSTER

MOST_FITTED = 1 << 20
"""Largest number of samples that are fitted; of more, as many are drawn."""


class ClusterStage(Stage):
    """Its one unit fits the partition to training images, most clusterings to their features, or takes it as it is."""

    name = "cluster"
    reads = ("catalog", "encode")
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [CLUSTER]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog and, where the fit needs them, the features of the training images."""
        fits_features = experiment.cluster.clustering.fits_features
        return [CATALOG, *(range_keys(experiment, "encode", (TRAIN,)) if fits_features else [])]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count no image where the partition is taken as it is."""
        return {} if experiment.cluster.clustering.is_fitted else {CATALOG: ""}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover clustering, number of experts and seed; of a partition that is taken as it is, features that fit it."""
        own = experiment.cluster.clustering
        features = feature_settings(experiment) if own.needs_features and not own.is_fitted else {}
        return {"cluster": hashed(experiment.cluster), "seed": experiment.seed} | features

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate centroids, and the features that are fitted, of which there is a copy while the unit runs."""
        sample = 4 * experiment.encode.encoder.dimensions(experiment.data)
        fitted = min(images["train"], MOST_FITTED) if experiment.cluster.clustering.fits_features else 0
        return DiskSpace(1024 * sample, fitted * sample, 2)
