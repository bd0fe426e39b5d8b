"""Stage cluster_report: a page about the clusters, to read before the experts are trained."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.disk_sizes import values_per_image
from hpcddm.pipeline.fingerprints import ALL, class_name_settings
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import TRAIN, range_keys
from hpcddm.runs.unit_keys import CATALOG, CLUSTER, CLUSTER_REPORT, EXPERT_LISTS

RANDOM_IMAGES, SELECTED_IMAGES = 24, 16
"""Pictures of each cluster: some at random; and, where there are features, typical and ambiguous ones, so many each."""
TEXT_BYTES, CLUSTER_BYTES = 30_000, 10_000
"""Bytes of page and file without pictures: of all clusters together, and of each."""


def images_per_cluster(experiment: Experiment) -> int:
    """Return the number of pictures of each cluster."""
    return RANDOM_IMAGES + 2 * SELECTED_IMAGES * experiment.cluster.clustering.needs_features


class ClusterReportStage(Stage):
    """Stage with one unit, which measures the clusters; trainings do not wait for it."""

    name = "cluster_report"
    reads = ("catalog", "encode", "cluster", "expert_lists")
    runs_at_every_site = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [CLUSTER_REPORT]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return lists and partition and, where the partition compares them, the features of the training images."""
        needs_features = experiment.cluster.clustering.needs_features
        encoded = range_keys(experiment, "encode", (TRAIN,)) if needs_features else []
        return [CATALOG, *encoded, CLUSTER, EXPERT_LISTS]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Include the training samples and all clusters, not their locations."""
        return {CATALOG: TRAIN, EXPERT_LISTS: ALL}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the seed of random draws and the names of classes; the page does not show training costs."""
        return {"seed": experiment.seed} | class_name_settings(experiment)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the page with its pictures; Base64 turns three bytes into four."""
        experts = experiment.cluster.experts
        pictures = experts * images_per_cluster(experiment) * values_per_image(experiment) * 4 // 3
        return DiskSpace(TEXT_BYTES + experts * CLUSTER_BYTES + pictures, 0, 2)
