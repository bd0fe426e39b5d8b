"""Classes, splits, lists and metrics, as stored in the manifests of a run."""

from collections.abc import Collection, Mapping
from typing import Any

from hpcddm.config.class_names import require_places
from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Expert
from hpcddm.errors import UserError, require
from hpcddm.runs import manifest
from hpcddm.runs.files import list_name
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CATALOG, list_key

EVALUATIONS = "evaluations"
"""Figure of an arm: evaluations of its networks per image, without the router's."""


def class_names(experiment: Experiment, inputs: Mapping[str, Manifest]) -> list[str]:
    """List the names of the classes.

    Args:
        experiment: The experiment; without classes the list is empty.
        inputs: Manifests by key; the catalog's manifest, if included, provides the names.

    Returns:
        One name per class; the class number if the images have no names of classes.
    """
    return all_class_names(experiment, inputs[CATALOG].results.get("class_names", []) if CATALOG in inputs else [])


def all_class_names(experiment: Experiment, names: list[str]) -> list[str]:
    """List the names of all classes of an experiment: its own, else the source's `names`, else the classes' numbers."""
    names, numbers = experiment.data.class_names or names, range(experiment.data.num_classes or 0)
    return [names[number] if number < len(names) else str(number) for number in numbers]


def check_numbers(experiment: Experiment, names: list[str], filtered_by: Collection[str] = ()) -> None:
    """Raise `UserError` for keys that list classes by their numbers, where these are names of other classes.

    names: those of the source, or none; filtered_by: columns that the filter reads.
    """
    data = experiment.data
    uses = {"cluster.clustering.groups": experiment.cluster.clustering.numbers_classes}
    uses |= {"data.condition.prompts": data.condition.numbers_classes, "data.filter": "label" in filtered_by}
    key = next((key for key, is_used in uses.items() if is_used), None)
    try:
        require_places((data.class_names or names) if key else [])
    except ValueError as error:
        raise UserError(f"{key}: {error}") from None


def stored_class_names(experiment: Experiment, run: RunDir) -> list[str]:
    """List the class names of a run; class numbers if the run has no catalog."""
    catalog = manifest.read(run.unit(CATALOG))
    return class_names(experiment, {} if catalog is None else {CATALOG: catalog})


def split_results(inputs: Mapping[str, Manifest], split: str) -> dict[str, Any]:
    """Return the catalog's results about a split: `samples` and, with classes, `class_counts`.

    Args:
        inputs: Manifests by key, including the catalog's.
        split: `train` or `heldout`.

    Raises:
        UserError: If the manifest lacks the split.
    """
    splits: dict[str, dict[str, Any]] = inputs[CATALOG].results["splits"]
    require(split in splits, f"{CATALOG}: its manifest lacks the split {split}; submit again with --redo catalog")
    return splits[split]


def list_results(inputs: Mapping[str, Manifest], expert: Expert) -> dict[str, Any]:
    """Return the results about an expert's list: `samples` and, with classes, `class_counts`.

    Both count the samples of the expert's cluster. `other_clusters` is the number of samples from other clusters in its
    training, if there are any.

    Args:
        inputs: Manifests by key, including the unit that writes the list.
        expert: Number of the expert's cluster, or the name of an extra expert.

    Raises:
        UserError: If the manifest lacks the list.
    """
    key, name = list_key(expert), list_name(expert)
    lists: dict[str, dict[str, Any]] = inputs[key].results["lists"]
    require(name in lists, f"{key}: its manifest lacks the list {name}; submit again with --redo expert_lists")
    return lists[name]


def arm_metrics(results: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the metrics of all arms from the results of a report.

    Args:
        results: Results in the manifest of the unit `report/all`.

    Returns:
        The metrics by name, by arm.

    Raises:
        UserError: If the results hold no metrics.
    """
    arms: dict[str, dict[str, float]] | list[str] = results["arms"]
    if isinstance(arms, list):
        raise UserError("report/all: its manifest has no figures of its arms; submit again with --redo report")
    return arms
