"""Stage copy_lists: copies the samples of a list into separate tars; only if `data.read_from` reads them."""

import math
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Expert
from hpcddm.pipeline import disk_sizes
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.files import list_name
from hpcddm.runs.unit_keys import CATALOG, all_experts, expert_of, list_key, unit_name


def copy_key(expert: Expert) -> str:
    """Return the key of the unit that copies the samples of an expert's list."""
    return f"copy_lists/{list_name(expert)}"


def copied_expert(key: str) -> Expert:
    """Return the expert whose list a unit copies; raises `ValueError` for the monolith, which has no list."""
    expert = expert_of(f"train/{unit_name(key)}")
    if expert is None:
        raise ValueError(f"{key}: the monolith has no list")
    return expert


def copies_read(experiment: Experiment, expert: Expert) -> list[str]:
    """List the copy that an expert's training reads; empty unless `data.read_from` reads copies."""
    return [copy_key(expert)] if experiment.data.read_from.reads_copies else []


class CopyListsStage(Stage):
    """Stage whose units copy the samples of one expert's list, at the site that trains the expert."""

    name = "copy_lists"
    reads = ("catalog", "expert_lists")

    def units(self, experiment: Experiment) -> list[str]:
        """List the lists, where experts read copies of them."""
        return [key for expert in all_experts(experiment) for key in copies_read(experiment, expert)]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog and the list."""
        return [CATALOG, list_key(copied_expert(key))]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Let the fingerprint include the list alone: equal samples give equal copies, whatever tars contain them."""
        expert = copied_expert(key)
        return {CATALOG: "", list_key(expert): list_name(expert)}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the removal of EXIF; the list determines all else."""
        return {"data.read_from.exif": "drop"} if experiment.data.read_from.drops_exif else {}

    def site(self, experiment: Experiment, key: str) -> str | None:
        """Return the expert's site, if the experiment names sites."""
        return experiment.experts.site_of(copied_expert(key))

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a list of middle length; of a list of keys, whose length is not known, as many samples."""
        experts, share = experiment.cluster.experts, experiment.experts.other_clusters_share
        samples = math.ceil(images["train"] / experts / (1 - share))
        return DiskSpace(samples * disk_sizes.sample_bytes(experiment), 0, 3)
