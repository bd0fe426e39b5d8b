"""Stage catalog: numbers all samples; what comes after it needs no tar's unit any more."""

from collections.abc import Mapping
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.errors import require
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs import manifest
from hpcddm.runs.layout import RunDir
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.ranges import range_keys, tars_of
from hpcddm.runs.unit_keys import CATALOG

CATALOG_FILE = "catalog.json"
ENTRY_BYTES = 200
"""Bytes that say where one tar, or one file of columns, lies."""
HASH_BYTES = 8
"""Bytes of a key's hash, which is sorted on disk."""


def class_names(experiment: Experiment, inputs: Mapping[str, Manifest]) -> list[str]:
    """List the classes' names, by the catalog's manifest; numbers where the images came without names.

    There are none where the experiment has no classes.
    """
    return all_names(experiment, inputs[CATALOG].results.get("class_names", []) if CATALOG in inputs else [])


def all_names(experiment: Experiment, names: list[str]) -> list[str]:
    """List the names of all classes of an experiment, numbers for those that are not named."""
    numbers = range(experiment.data.num_classes or 0)
    return [names[number] if number < len(names) else str(number) for number in numbers]


def stored_class_names(experiment: Experiment, run: RunDir) -> list[str]:
    """List the class names of a run; numbers where its catalog is missing."""
    catalog = manifest.read(run.unit(CATALOG))
    return class_names(experiment, {} if catalog is None else {CATALOG: catalog})


def split_results(inputs: Mapping[str, Manifest], split: str) -> dict[str, Any]:
    """Return what is known of a split: `samples` and, with classes, `class_counts`.

    Raises `UserError` where the manifest lacks the split.
    """
    splits: dict[str, dict[str, Any]] = inputs[CATALOG].results["splits"]
    require(split in splits, f"{CATALOG}: its manifest lacks the split {split}; submit again with --redo catalog")
    return splits[split]


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
