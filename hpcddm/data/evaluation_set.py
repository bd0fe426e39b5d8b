"""The evaluation set: real images whose conditions and clusters the evaluation's samples have, one by one."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Int64

from hpcddm.config.experiment import Experiment
from hpcddm.data.catalog import Catalog, split_into_blocks
from hpcddm.data.columns import Column, gather_rows
from hpcddm.data.run_samples import open_unit_catalog
from hpcddm.errors import UserError, require
from hpcddm.jobs.unit import Unit
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import EVALUATED_IMAGES, SAMPLE_CLASSES
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.stored_results import class_names

SEED = 0
"""Seed of the choice: runs that differ in their seed share the measurements of the real images."""


def evaluation_samples(unit: Unit, experiment: Experiment, split: str = HELDOUT) -> Int64[np.ndarray, " n"]:
    """Return the numbers of the samples that the evaluation uses, in its order from place 0 on."""
    names = class_names(experiment, unit.inputs)
    return choose_evaluation_samples(open_unit_catalog(unit, split), experiment, names, split)


def condition_samples(unit: Unit, experiment: Experiment) -> Int64[np.ndarray, " n"]:
    """Return the numbers of the held-out images whose conditions the samples have, from sample 0 on."""
    names = class_names(experiment, unit.inputs)
    return choose_condition_samples(open_unit_catalog(unit, HELDOUT), experiment, names)


def choose_evaluation_samples(
    split_catalog: Catalog, experiment: Experiment, names: Sequence[str], split: str = HELDOUT
) -> Int64[np.ndarray, " n"]:
    """Choose the samples of a split that the evaluation uses, balanced over the classes if there are any.

    Args:
        split_catalog: Catalog of the split.
        experiment: Experiment of the run.
        names: Names of the classes; empty without classes.
        split: Name of the split.

    Returns:
        Numbers of the samples from place 0 on, also of the places before `evaluate.first_sample`.

    Raises:
        UserError: The split has too few samples.
    """
    count = experiment.evaluate.first_sample + experiment.evaluate.images
    if experiment.data.num_classes is None:
        return choose_random(len(split_catalog), count, split)
    return choose_balanced(split_catalog.column("label"), names, count, split)


def choose_condition_samples(heldout: Catalog, experiment: Experiment, names: Sequence[str]) -> Int64[np.ndarray, " n"]:
    """Choose the held-out images whose conditions the samples have, by `evaluate.labels`.

    Args:
        heldout: Catalog of the held-out images.
        experiment: Experiment of the run.
        names: Names of the classes; empty without classes.

    Returns:
        Numbers of the images from sample 0 on: those of the evaluation set itself, or of classes drawn at random.
    """
    chosen = choose_evaluation_samples(heldout, experiment, names)
    if experiment.evaluate.labels == "balanced":
        return chosen
    return chosen[random_classes(len(chosen), len(names), experiment.seed)]


def choose_balanced(
    labels: Column | Int[np.ndarray, " n"], class_names: Sequence[str], count: int, split: str
) -> Int64[np.ndarray, " {count}"]:
    """Choose the first `count` samples of a split with class i % C at place i; class_names: of all C classes.

    split: its name. labels: of all samples of the split. Raises `UserError` when a class has too few.
    """
    needed = count // len(class_names)
    of_class = [np.empty(0, dtype=np.int64) for _ in class_names]
    for block in split_into_blocks(range(len(labels))):
        found = gather_rows(labels, block)
        of_class = [np.append(own, block[0] + np.flatnonzero(found == label)) for label, own in enumerate(of_class)]
        if all(len(own) >= needed for own in of_class):
            break
    for label, numbers in enumerate(of_class):
        if len(numbers) < needed:
            raise UserError(
                f"evaluate.images: {count} images need {needed} {split} images of class {class_names[label]}, there are"
                f" {len(numbers)}; at most {min(map(len, of_class)) * len(class_names)} can be balanced"
            )
    return np.stack([numbers[:needed] for numbers in of_class], axis=1).reshape(-1)


def choose_random(size: int, count: int, split: str) -> Int64[np.ndarray, " {count}"]:
    """Draw `count` samples of a split of `size` at random, for images without classes; the same for all seeds of runs.

    split: its name. Raises `UserError` when there are too few.
    """
    require(size >= count, f"evaluate.images: {count} images need as many {split} images; take at most {size}")
    return keyed.random_subset(SEED, EVALUATED_IMAGES, size, count)


def random_classes(count: int, num_classes: int, seed: int) -> Int64[np.ndarray, " {count}"]:
    """Return for every sample the place of a balanced image whose class is drawn at random, with replacement.

    count: number of balanced images, a multiple of `num_classes`. seed: of the experiment.
    """
    places = np.arange(count)
    classes = (keyed.uniform(seed, SAMPLE_CLASSES, range(count)).double().numpy() * num_classes).astype(np.int64)
    return places // num_classes * num_classes + classes
