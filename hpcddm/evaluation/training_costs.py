"""Images and FLOPs of the trained units as the experiment has them, and where a unit's record says something else.

A unit may come from another site, and so do the numbers in its manifest: what a report prints is computed here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Training
from hpcddm.errors.printing import printable
from hpcddm.pipeline.plan import init_request
from hpcddm.runs import unit_settings, weights_files
from hpcddm.runs.manifest import SNAPSHOTS, Manifest
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.stored_results import list_results, split_results
from hpcddm.runs.unit_keys import MONOLITH, ROUTER, STUDENT, expert_key
from hpcddm.runs.weights_files import Kept
from hpcddm.sampling import router_samples
from hpcddm.training import budgets


@dataclass(frozen=True)
class Spent:
    """Images that a unit has seen for the weights that are evaluated, its training FLOPs, and its own samples."""

    images: int
    train_flops: int
    samples: int | None = None
    """None for units that have no list of their own."""
    foreign: int = 0
    """Samples of other clusters on which an expert is trained, too."""


def spent(settings: Experiment, inputs: Mapping[str, Manifest]) -> dict[str, Spent]:
    """Compute what every trained unit among the inputs has spent, by its key."""
    experts = [number for number in range(settings.cluster.experts) if expert_key(number) in inputs]
    flops = budgets.flops_of_each(settings, (*experts, None), budgets.train_flops)
    lists = [list_results(inputs, number) for number in range(settings.cluster.experts)]
    by_key = {
        expert_key(number): Spent(
            images := _images(settings, expert_key(number), unit_settings.expert_training(settings, number)),
            images * own,
            lists[number]["samples"],
            lists[number].get("foreign", 0),
        )
        for number, own in zip(experts, flops, strict=False)
    }
    if MONOLITH in inputs:
        images = _images(settings, MONOLITH, budgets.monolith_training(settings))
        by_key[MONOLITH] = Spent(images, images * flops[-1], split_results(inputs, TRAIN)["samples"])
    if STUDENT in inputs:
        images = _images(settings, STUDENT, unit_settings.student_training(settings))
        by_key[STUDENT] = Spent(images, images * (flops[-1] + round(budgets.teacher_flops(settings, inputs))))
    if ROUTER in inputs:
        by_key[ROUTER] = _of_router(settings, inputs, [own["samples"] for own in lists])
    return by_key


def _of_router(settings: Experiment, inputs: Mapping[str, Manifest], sizes: list[int]) -> Spent:
    training, samples = unit_settings.router_training(settings), settings.router.samples
    if training is None:
        return Spent(split_results(inputs, TRAIN)["samples"], 0)
    images = _images(settings, ROUTER, training)
    fitted = budgets.fit_flops(settings) // training.images * images
    if samples is None:
        return Spent(images, fitted)
    drawn = router_samples.shares(sizes, samples.images * len(sizes)).tolist()
    return Spent(images, fitted + budgets.sampling_flops(settings, drawn))


def _images(settings: Experiment, key: str, training: Training) -> int:
    """Return the images of a unit's training at the weights that are evaluated."""
    number = weights_files.snapshot_number(settings, key, weights_files.chosen(settings))
    total = (settings.router.training or training) if key == ROUTER else settings.experts.training
    return training.images if number is None else Kept.of(total, training).snapshots[number]


def starts(settings: Experiment, inputs: Mapping[str, Manifest], keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Collect the initial weights of some units by the SHA-256 of the file, which several units may share.

    What else is known of a file is what its owner says; a record that makes no sense is left out.
    """
    records = (inputs[key].results.get("start") for key in keys if _fault_of_start(settings, key, inputs[key]) is None)
    return {record["sha256"]: record for record in records if record is not None}


def contradictions(settings: Experiment, inputs: Mapping[str, Manifest]) -> list[str]:
    """Say, a line for each unit, where a manifest records something else than follows from the experiment."""
    lines = []
    for key, own in spent(settings, inputs).items():
        recorded = _recorded(settings, key, inputs[key])
        expected = {"images": own.images, "train_flops": own.train_flops}
        if own.samples is not None:
            expected |= {"samples": own.samples} | ({"foreign": own.foreign} if own.foreign else {})
        wrong = [
            f"{name} {printable(recorded.get(name), 40)} instead of {value}"
            for name, value in expected.items()
            if recorded.get(name) != value
        ]
        fault = _fault_of_start(settings, key, inputs[key])
        if wrong or fault:
            lines.append(f"{key} records {', '.join([*wrong, *([fault] if fault else [])])}")
    return lines


def _recorded(settings: Experiment, key: str, unit: Manifest) -> dict[str, Any]:
    """Return what a manifest says of the weights that are evaluated."""
    number = weights_files.snapshot_number(settings, key, weights_files.chosen(settings))
    kept = {} if number is None else unit.results.get(SNAPSHOTS, {}).get(str(number), {})
    return unit.results | (kept if number is not None else {})


def _fault_of_start(settings: Experiment, key: str, unit: Manifest) -> str | None:
    """Say what is wrong with a unit's record of its initial weights; None where nothing is."""
    record, request = unit.results.get("start"), init_request(settings, key)
    if record is None or request is None:
        return None if record is None and request is None else "other initial weights than the experiment has"
    numbers = [record.get(name) for name in ("images", "train_flops")]
    is_sound = all(number is None or (type(number) is int and number >= 0) for number in numbers)
    is_sound = is_sound and isinstance(record.get("source"), str) and isinstance(record.get("sha256"), str)
    if not is_sound or request.init_from.content not in (None, record["sha256"]):
        return "other initial weights than the experiment has"
    return None
