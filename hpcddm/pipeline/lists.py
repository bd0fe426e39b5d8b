"""Stage lists: the samples of every expert; what comes after it needs no unit of a range any more."""

from collections.abc import Mapping
from typing import Any

from hpcddm.config import Experiment, Expert
from hpcddm.pipeline.disk import LIST_ENTRY_BYTES
from hpcddm.pipeline.keys import CATALOG, LISTS
from hpcddm.pipeline.ranges import range_keys
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.rundir.manifest import Manifest

LISTS_FILE = "lists.json"
ENTRY_BYTES = 1000
"""Bytes that say of one list, or of one range, what is in it."""


def list_name(expert: Expert) -> str:
    """Return the name of an expert's list."""
    return f"expert-{expert:02d}"


def list_file(expert: Expert) -> str:
    """Return the file of an expert's list."""
    return f"{list_name(expert)}.h5"


def list_results(inputs: Mapping[str, Manifest], expert: Expert) -> dict[str, Any]:
    """Return what is known of an expert's list: `samples` and, with classes, `class_counts`."""
    return inputs[LISTS].results["lists"][list_name(expert)]


class ListsStage(Stage):
    """Its one unit writes one list for each expert, and says what all ranges' clusters are."""

    name = "lists"
    reads = ("catalog", "assign")
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [LISTS]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the clusters of all samples."""
        return [CATALOG, *range_keys(experiment, "assign")]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the number of experts."""
        return {"cluster.experts": experiment.cluster.experts}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the numbers of all training samples."""
        experts = experiment.cluster.experts
        entries = experts + len(range_keys(experiment, "assign"))
        return DiskSpace(images["train"] * LIST_ENTRY_BYTES + entries * ENTRY_BYTES, 0, experts + 2)
