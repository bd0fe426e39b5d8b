"""Stage expert_lists: the list of every expert's samples, by clusters or by keys."""

import math
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.disk_sizes import LIST_ENTRY_BYTES
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import TRAIN, range_keys
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS, list_key, unit_name

ENTRY_BYTES = 1000
"""Bytes that describe the content of one list, or of one range."""


class ExpertListsStage(Stage):
    """Stage with one unit for the lists of all clusters, and one unit per list of an extra expert."""

    name = "expert_lists"
    reads = ("catalog", "assign")
    runs_at_every_site = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the unit of all clusters, then those of the extra experts."""
        return [EXPERT_LISTS, *(list_key(extra.name) for extra in experiment.experts.extra)]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the clusters of all samples; a list of keys needs the catalog alone."""
        return [CATALOG, *range_keys(experiment, "assign")] if key == EXPERT_LISTS else [CATALOG]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the training samples for a list of keys, not their locations."""
        return {} if key == EXPERT_LISTS else {CATALOG: TRAIN}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the number of experts and, where there are any, the samples of other clusters; or a file of keys."""
        if key == EXPERT_LISTS:
            settings = {"cluster.experts": experiment.cluster.experts}
            share = experiment.experts.other_clusters_share
            return settings | ({"experts.other_clusters_share": share, "seed": experiment.seed} if share else {})
        return {"experts.extra.content_hash": experiment.experts.extra_expert(unit_name(key)).content_hash}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the numbers of all training samples, the most that a list of keys can name."""
        if key != EXPERT_LISTS:
            return DiskSpace(images["train"] * LIST_ENTRY_BYTES + ENTRY_BYTES, 0, 1)
        experts, share = experiment.cluster.experts, experiment.experts.other_clusters_share
        entries = experts + len(range_keys(experiment, "assign"))
        lists = DiskSpace(images["train"] * LIST_ENTRY_BYTES + entries * ENTRY_BYTES, 0, experts + 2)
        trained = DiskSpace(math.ceil(images["train"] / (1 - share)) * LIST_ENTRY_BYTES, 0, experts)
        return lists + trained if share else lists
