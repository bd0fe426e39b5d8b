"""Stage materialise: the samples of a list once more, as tars of their own; only where `data.reading` reads them."""

import math
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Expert
from hpcddm.pipeline import disk
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.files import list_name
from hpcddm.runs.unit_keys import CATALOG, expert_of, experts_of, list_key, name_of


def copy_key(expert: Expert) -> str:
    """Return the key of the unit that copies the samples of an expert's list."""
    return f"materialise/{list_name(expert)}"


def copied_expert(key: str) -> Expert:
    """Return the expert whose list a unit copies; raises ValueError for the monolith, which has none."""
    expert = expert_of(f"train/{name_of(key)}")
    if expert is None:
        raise ValueError(f"{key}: the monolith has no list")
    return expert


def copies_read(experiment: Experiment, expert: Expert) -> list[str]:
    """List the copies that an expert's training reads: that of its list, where the reading goes by copies."""
    return [copy_key(expert)] if experiment.data.reading.reads_copies else []


class MaterialiseStage(Stage):
    """A unit copies the list of one expert, at the site that trains it."""

    name = "materialise"
    reads = ("catalog", "lists")

    def units(self, experiment: Experiment) -> list[str]:
        """List the lists, where experts read copies of them."""
        return [key for expert in experts_of(experiment) for key in copies_read(experiment, expert)]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog and the list."""
        return [CATALOG, list_key(copied_expert(key))]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the list alone: the same samples make the same copy, in whatever tars they lie."""
        expert = copied_expert(key)
        return {CATALOG: "", list_key(expert): list_name(expert)}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover whether EXIF is dropped; the list says all else."""
        return {"data.reading.exif": "drop"} if experiment.data.reading.drops_exif else {}

    def site(self, experiment: Experiment, key: str) -> str | None:
        """Return the expert's own site, where the experiment names sites."""
        return experiment.experts.site_of(copied_expert(key))

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a list of middle length; of a list of keys, whose length is not known, as many samples."""
        samples = math.ceil(images["train"] / experiment.cluster.experts / (1 - experiment.experts.foreign_share))
        return DiskSpace(samples * disk.sample_bytes(experiment), 0, 3)
