"""Stage inspect: what is in the clusters, on a page to look at before their experts are trained."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.disk import values_per_image
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import TRAIN, range_keys
from hpcddm.runs.unit_keys import CATALOG, CLUSTER, INSPECT, LISTS

RANDOM_PICTURES, CHOSEN_PICTURES = 24, 16
"""Pictures of each cluster: some at random; and, where there are features, typical and ambiguous ones, so many each."""
TEXT_BYTES, CLUSTER_BYTES = 30_000, 10_000
"""Bytes of page and file without pictures: of all clusters together, and of each."""


def pictures_per_cluster(experiment: Experiment) -> int:
    """Return the number of pictures of each cluster."""
    return RANDOM_PICTURES + 2 * CHOSEN_PICTURES * experiment.cluster.clustering.needs_features


class InspectStage(Stage):
    """Its one unit measures the clusters; nothing is trained on what it says, so no training waits for it."""

    name = "inspect"
    reads = ("catalog", "encode", "cluster", "lists")
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [INSPECT]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return lists and partition and, where the partition compares them, the features of the training images."""
        needs_features = experiment.cluster.clustering.needs_features
        encoded = range_keys(experiment, "encode", (TRAIN,)) if needs_features else []
        return [CATALOG, *encoded, CLUSTER, LISTS]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the training samples and all clusters, not where they lie."""
        return {CATALOG: TRAIN, LISTS: ALL}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the seed of what is drawn; all else follows from the inputs, and what a training costs is not said."""
        return {"seed": experiment.seed}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the page with its pictures, of which Base64 makes four bytes of three."""
        experts = experiment.cluster.experts
        pictures = experts * pictures_per_cluster(experiment) * values_per_image(experiment) * 4 // 3
        return DiskSpace(TEXT_BYTES + experts * CLUSTER_BYTES + pictures, 0, 2)
