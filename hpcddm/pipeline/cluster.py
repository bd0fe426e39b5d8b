"""Stage cluster: every image gets one of K clusters, every expert the list of its samples."""

from typing import Any

from hpcddm.config import Experiment
from hpcddm.pipeline.disk import INDEX_ROW_BYTES
from hpcddm.pipeline.encode import encode_keys
from hpcddm.pipeline.keys import CLUSTER
from hpcddm.pipeline.shard import shard_keys
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.schema import hashed

PARTITION = "partition.h5"


class ClusterStage(Stage):
    """Its one unit partitions the data."""

    name = "cluster"
    reads = ("shard", "encode")
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [CLUSTER]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return all shards and their features."""
        return [*shard_keys(experiment), *encode_keys(experiment)]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover clustering, number of experts and seed."""
        return {"cluster": hashed(experiment.cluster), "seed": experiment.seed}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate lists and centroids; every training image stands in its split's list and in its expert's."""
        rows = 2 * images["train"] + images["heldout"]
        centroids = 4 * 1024 * experiment.encode.encoder.dimensions(experiment.data)
        return DiskSpace(rows * INDEX_ROW_BYTES + centroids, 0, experiment.cluster.experts + 3)
