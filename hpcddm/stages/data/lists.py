"""Stage lists: the samples of every expert, by clusters or by keys; behind it nothing needs a unit of a range."""

import math
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.disk import LIST_ENTRY_BYTES
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import TRAIN, range_keys
from hpcddm.runs.unit_keys import CATALOG, LISTS, list_key, name_of

ENTRY_BYTES = 1000
"""Bytes that say of one list, or of one range, what is in it."""


class ListsStage(Stage):
    """One unit writes the lists of all clusters, and says what all ranges' clusters are; others one each, by keys."""

    name = "lists"
    reads = ("catalog", "assign")
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the unit of all clusters, then those of the experts that joined."""
        return [LISTS, *(list_key(joined.name) for joined in experiment.experts.joined)]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the clusters of all samples; a list of keys needs the catalog alone."""
        return [CATALOG, *range_keys(experiment, "assign")] if key == LISTS else [CATALOG]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the training samples for a list of keys, not where they lie."""
        return {} if key == LISTS else {CATALOG: TRAIN}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the number of experts and, where there are any, the foreign samples; or a file of keys."""
        if key == LISTS:
            settings = {"cluster.experts": experiment.cluster.experts}
            share = experiment.experts.foreign_share
            return settings | ({"experts.foreign_share": share, "seed": experiment.seed} if share else {})
        return {"experts.joined.content": experiment.experts.joined_expert(name_of(key)).content}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the numbers of all training samples, the most that a list of keys can name."""
        if key != LISTS:
            return DiskSpace(images["train"] * LIST_ENTRY_BYTES + ENTRY_BYTES, 0, 1)
        experts, share = experiment.cluster.experts, experiment.experts.foreign_share
        entries = experts + len(range_keys(experiment, "assign"))
        lists = DiskSpace(images["train"] * LIST_ENTRY_BYTES + entries * ENTRY_BYTES, 0, experts + 2)
        trained = DiskSpace(math.ceil(images["train"] / (1 - share)) * LIST_ENTRY_BYTES, 0, experts)
        return lists + trained if share else lists
