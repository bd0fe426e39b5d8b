"""Stage catalog: numbers all samples; what comes after it needs no tar's unit any more."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import range_keys, tars_of
from hpcddm.runs.unit_keys import CATALOG

ENTRY_BYTES = 200
"""Bytes that say where one tar, or one file of columns, lies."""
HASH_BYTES = 8
"""Bytes of a key's hash, which is sorted on disk."""


class CatalogStage(Stage):
    """Its one unit gives every sample its number, and says where tars and columns lie."""

    name = "catalog"
    reads = ("shard",)
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [CATALOG]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return all tars."""
        return range_keys(experiment, "shard")

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover no setting: the inputs say all."""
        return {}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the places of tars and columns, and the hashes of the keys."""
        keys = range_keys(experiment, "shard")
        hashes = HASH_BYTES * sum(images.values())
        return DiskSpace(ENTRY_BYTES * sum(1 + len(tars_of(experiment, key)) for key in keys), hashes, 1)
