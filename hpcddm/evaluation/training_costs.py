"""Images and FLOPs of the trained units as the experiment has them, and where a unit's record says something else.

A unit may come from another site, and so do the numbers in its manifest: what a report prints is computed here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.errors.printing import printable
from hpcddm.runs import weights_files
from hpcddm.runs.files import SNAPSHOTS
from hpcddm.runs.initial_weights import init_request
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.stored_results import list_results, split_results
from hpcddm.runs.unit_keys import MONOLITH, ROUTER, STUDENT, expert_keys
from hpcddm.sampling import router_samples
from hpcddm.training import flops_budget


@dataclass(frozen=True)
class TrainingCost:
    """Images that a unit has seen for the weights that are evaluated, its training FLOPs, and its own samples."""

    images: int
    train_flops: int
    samples: int | None = None
    """None for units that have no list of their own."""
    other_clusters: int = 0
    """Samples of other clusters on which an expert is trained, too."""

    @property
    def passes(self) -> float | None:
        """Times that the unit saw each of its own samples on average; None where these are not counted."""
        own = (self.samples or 0) + self.other_clusters
        return self.images / own if own else None


def training_costs(experiment: Experiment, inputs: Mapping[str, Manifest]) -> dict[str, TrainingCost]:
    """Compute what every trained unit among the inputs has spent, by its key."""
    lists = [list_results(inputs, number) for number in range(experiment.cluster.experts)]
    by_key = {
        key: replace(_cost(experiment, key), samples=own["samples"], other_clusters=own.get("other_clusters", 0))
        for key, own in zip(expert_keys(experiment), lists, strict=True)
        if key in inputs
    }
    if MONOLITH in inputs:
        by_key[MONOLITH] = replace(_cost(experiment, MONOLITH), samples=split_results(inputs, TRAIN)["samples"])
    if STUDENT in inputs:
        by_key[STUDENT] = _cost(experiment, STUDENT, round(flops_budget.teacher_flops(experiment, inputs)))
    if ROUTER in inputs:
        by_key[ROUTER] = _of_router(experiment, inputs, [own["samples"] for own in lists])
    return by_key


def _of_router(experiment: Experiment, inputs: Mapping[str, Manifest], sizes: list[int]) -> TrainingCost:
    samples = experiment.router.samples
    if experiment.router.training is None:
        return TrainingCost(split_results(inputs, TRAIN)["samples"], 0)
    fitted = _cost(experiment, ROUTER)
    if samples is None:
        return fitted
    drawn = router_samples.shares(sizes, samples.images * len(sizes)).tolist()
    drawing = flops_budget.router_samples_flops(experiment, drawn)
    return replace(fitted, train_flops=fitted.train_flops + drawing)


def _cost(experiment: Experiment, key: str, teacher_flops: int = 0) -> TrainingCost:
    """Return the images and FLOPs of a unit's training at the weights that are evaluated."""
    number = weights_files.snapshot_number(experiment, key, weights_files.selected_weights(experiment))
    training = flops_budget.training_of(experiment, key)
    images = training.settings.images if number is None else training.settings.by_experiment_number[number]
    return TrainingCost(images, images * (training.flops_per_image + teacher_flops))


def collect_initial_weights(
    experiment: Experiment, inputs: Mapping[str, Manifest], keys: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Collect the initial weights of some units by the SHA-256 of the file, which several units may share.

    All other facts about a file come from its owner; invalid records are left out.
    """
    records = (inputs[key].results.get("start") for key in keys if _is_start_valid(experiment, key, inputs[key]))
    return {record["sha256"]: record for record in records if record is not None}


def contradictions(experiment: Experiment, inputs: Mapping[str, Manifest]) -> list[str]:
    """Say, a line for each unit, where a manifest records something else than follows from the experiment."""
    lines = []
    for key, own in training_costs(experiment, inputs).items():
        recorded = _recorded(experiment, key, inputs[key])
        expected = {"images": own.images, "train_flops": own.train_flops}
        if own.samples is not None:
            expected["samples"] = own.samples
            expected |= {"other_clusters": own.other_clusters} if own.other_clusters else {}
        wrong = [
            f"{name} {printable(recorded.get(name), 40)} instead of {value}"
            for name, value in expected.items()
            if recorded.get(name) != value
        ]
        if not _is_start_valid(experiment, key, inputs[key]):
            wrong.append("other initial weights than the experiment has")
        if wrong:
            lines.append(f"{key} records {', '.join(wrong)}")
    return lines


def _recorded(experiment: Experiment, key: str, unit: Manifest) -> dict[str, Any]:
    """Return a manifest's record of the evaluated weights."""
    number = weights_files.snapshot_number(experiment, key, weights_files.selected_weights(experiment))
    kept = {} if number is None else unit.results.get(SNAPSHOTS, {}).get(str(number), {})
    return unit.results | kept


def _is_start_valid(experiment: Experiment, key: str, unit: Manifest) -> bool:
    """Tell if a unit's record of its initial weights is valid, and of those that the experiment has."""
    record, request = unit.results.get("start"), init_request(experiment, key)
    if record is None or request is None:
        return record is None and request is None
    numbers = [record.get(name) for name in ("images", "train_flops")]
    is_sound = all(number is None or (type(number) is int and number >= 0) for number in numbers)
    is_sound = is_sound and isinstance(record.get("source"), str) and isinstance(record.get("sha256"), str)
    # The hash of an ensemble is that of all its networks.
    stated = None if request.init_from.ensemble else request.init_from.content_hash
    return is_sound and stated in (None, record["sha256"])
