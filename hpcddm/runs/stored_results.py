"""Classes, splits, lists and figures as the manifests of a run state them."""

from collections.abc import Mapping
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Expert
from hpcddm.errors import UserError, require
from hpcddm.runs import manifest
from hpcddm.runs.files import list_name
from hpcddm.runs.layout import RunDir
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.unit_keys import CATALOG, list_key


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


def list_results(inputs: Mapping[str, Manifest], expert: Expert) -> dict[str, Any]:
    """Return what is known of an expert's list: `samples` and, with classes, `class_counts`.

    Both are of its cluster; `foreign` is the number of samples of others that it is trained on, where there are any.
    Raises `UserError` where the manifest lacks the list.
    """
    key, name = list_key(expert), list_name(expert)
    lists: dict[str, dict[str, Any]] = inputs[key].results["lists"]
    require(name in lists, f"{key}: its manifest lacks the list {name}; submit again with --redo lists")
    return lists[name]


def figures_of(results: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the figures of all arms among the results of a report; raises `UserError` for what is none."""
    arms: dict[str, dict[str, float]] | list[str] = results["arms"]
    if isinstance(arms, list):
        raise UserError("report/all: its manifest has no figures of its arms; submit again with --redo report")
    return arms
