"""Snapshots: averaged weights that a training keeps at stated numbers of images, and the files that hold them.

A snapshot bears the number of the experiment, which counts all experts together; where it lies in a unit's own images
is what `trainings` makes of that number. The router has numbers of its own, the first of which goes with the first of
the experts, and so on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcddm.config import Experiment
from hpcddm.initial_weights import OWN_WEIGHTS
from hpcddm.pipeline.keys import MONOLITH, ROUTER, STUDENT, expert_of
from hpcddm.pipeline.trainings import expert_training, numbered, router_training, student_training
from hpcddm.rundir.manifest import SNAPSHOTS, Manifest


@dataclass(frozen=True)
class Choice:
    """Which of the weights that trainings have kept are meant; by default those of their end."""

    snapshot: int | None = None


FINAL = Choice()


def chosen(experiment: Experiment) -> Choice:
    """Return the weights that the experiment evaluates."""
    return Choice(experiment.evaluate.snapshot)


def snapshot_file(number: int) -> str:
    """Return the name of the file of a snapshot, relative to the unit's folder."""
    return f"{SNAPSHOTS}/images-{number:012d}.safetensors"


def weights_file(experiment: Experiment, key: str, choice: Choice) -> str:
    """Return the file of a unit's weights, relative to its folder."""
    number = snapshot_number(experiment, key, choice)
    return OWN_WEIGHTS if number is None else snapshot_file(number)


def snapshot_number(experiment: Experiment, key: str, choice: Choice) -> int | None:
    """Return the number of a unit's own snapshot; None where its final weights stand for it.

    That is so for a router without snapshots, and for an expert that joined and ended before.
    """
    if choice.snapshot is None:
        return None
    if key == ROUTER:
        place = experiment.experts.training.snapshots.index(choice.snapshot)
        own = experiment.router.training.snapshots if experiment.router.training else []
        return own[place] if own else None
    # The images of the monolith depend on FLOPs, but it has all snapshots.
    has_it = key in (MONOLITH, STUDENT) or choice.snapshot in own_images(experiment, key)
    return choice.snapshot if has_it else None


def own_images(experiment: Experiment, key: str) -> dict[int, int]:
    """Return the snapshots of a unit's training by their number, in its own images; not those of the monolith."""
    if key == ROUTER:
        total, own = experiment.router.training, router_training(experiment)
        return {} if total is None or own is None else numbered(total, own)
    total = experiment.experts.training
    if key == STUDENT:
        return numbered(total, student_training(experiment))
    expert = expert_of(key)
    if expert is None:
        raise ValueError("the monolith's snapshots lie where its FLOPs are those of the experts")
    return numbered(total, expert_training(experiment, expert))


def results(images: Mapping[int, int], flops_per_image: int, flops_before: int = 0) -> dict[str, Any]:
    """Return what a unit's manifest says of its snapshots: images and training FLOPs, by number; {} without any.

    flops_before: those that were spent before the training, which count for every snapshot.
    """
    of_each = {
        str(number): {"images": own, "train_flops": own * flops_per_image + flops_before}
        for number, own in images.items()
    }
    return {SNAPSHOTS: of_each} if of_each else {}


def trained_to(experiment: Experiment, key: str, unit: Manifest) -> dict[str, Any]:
    """Return `images` and `train_flops` of the weights of a unit that the experiment evaluates."""
    number = snapshot_number(experiment, key, chosen(experiment))
    return unit.results if number is None else unit.results[SNAPSHOTS][str(number)]


def missing(taken: Mapping[str, Mapping[str, Any]], images: int, wanted: Mapping[int, int]) -> int | None:
    """Return the first snapshot that a training at so many images has passed and not taken where it is wanted.

    taken: what is known of the snapshots in a state, by number.
    """
    return next(
        (number for number, own in wanted.items() if own <= images and taken.get(str(number), {}).get("images") != own),
        None,
    )


def impossible(key: str, number: int, own: int, state: str) -> str:
    """Say that no state can give a snapshot, and the ways out; state: where the newest lies."""
    return (
        f"{key}: snapshot {number}, at {own} images of this unit, is missing, and {state} lies beyond it;"
        f" take {number} out of `snapshots`, or delete the states beyond it to train that part again"
    )
