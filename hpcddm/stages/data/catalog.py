"""Stage catalog: numbers all samples, so that later stages do not depend on units of tars."""

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import range_keys, tars_of
from hpcddm.runs.unit_keys import CATALOG
from hpcddm.stages.unit_kinds import UnitsOfInputs

ENTRY_BYTES = 200
"""Bytes of the location of one tar, or of one file of columns."""
HASH_BYTES = 8
"""Bytes of a key's hash, which is sorted on disk."""


class CatalogStage(UnitsOfInputs, Stage):
    """Stage with one unit, which numbers the samples and lists the locations of tars and columns."""

    name = "catalog"
    reads = ("shard",)
    runs_at_every_site = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [CATALOG]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return all tars."""
        return range_keys(experiment, "shard")

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the places of tars and columns, and the hashes of the keys."""
        keys = range_keys(experiment, "shard")
        hashes = HASH_BYTES * sum(images.values())
        return DiskSpace(ENTRY_BYTES * sum(1 + len(tars_of(experiment, key)) for key in keys), hashes, 1)
