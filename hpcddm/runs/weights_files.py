"""Weights that a training keeps: at its end and at stated numbers of images, averaged in several ways; their files.

A snapshot bears the number of the experiment, which counts all experts together; where it lies in a unit's own images
is what `unit_settings` makes of that number. The router has numbers of its own, the first of which goes with the first
of the experts, and so on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Training
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.manifest import SNAPSHOTS, Manifest
from hpcddm.runs.unit_keys import MONOLITH, ROUTER, STUDENT, expert_of
from hpcddm.runs.unit_settings import expert_training, numbered, router_training, student_training

SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Choice:
    """Selection among the weights that trainings have kept; by default the usual average at their end."""

    snapshot: int | None = None
    sigma_rel: float | None = None
    """Relative length of an average that is made of the power-function averages."""

    def __str__(self) -> str:
        parts = {
            "after {:,} images of all experts together": self.snapshot,
            "averaged afterwards to a relative length of {:g}": self.sigma_rel,
        }
        return ", ".join(text.format(value) for text, value in parts.items() if value is not None)


FINAL = Choice()


def chosen(experiment: Experiment) -> Choice:
    """Return the weights that the experiment evaluates."""
    return Choice(experiment.evaluate.snapshot, experiment.evaluate.sigma_rel)


@dataclass(frozen=True)
class Kept:
    """Weights that a training keeps beside the usual average at its end."""

    snapshots: Mapping[int, int] = field(default_factory=dict)
    """Images of the unit by those of the experiment."""
    power_ema: Sequence[float] = ()
    """Relative lengths of power-function averages."""

    @classmethod
    def of(cls, total: Training, own: Training) -> "Kept":
        """Return what a unit keeps by its own training, whose numbers `total` has in those of the experiment."""
        return cls(numbered(total, own), own.power_ema)

    @property
    def averages(self) -> dict[str, str]:
        """Names of the averages by what they add to the name of a file."""
        return {"": USUAL} | {name: name for name in map(power_average, self.power_ema)}

    def files(self) -> list[str]:
        """List the files of weights, the usual average at the end first."""
        return [weights_name(number, added) for number in (None, *self.snapshots) for added in self.averages]


USUAL = "ema"
"""Name of the average of `ema_halflife_images`."""


def power_average(sigma_rel: float) -> str:
    """Return the name of a power-function average."""
    return f"power-{sigma_rel:g}"


def weights_name(number: int | None, added: str = "") -> str:
    """Return the name of a file of weights, relative to the unit's folder.

    number: that of a snapshot, None at the end; added: what a further average adds to the name.
    """
    if number is None:
        return f"weights-{added}{SUFFIX}" if added else WEIGHTS
    stem = f"{SNAPSHOTS}/images-{number:012d}"
    return f"{stem}-{added}{SUFFIX}" if added else f"{stem}{SUFFIX}"


def weights_file(experiment: Experiment, key: str, choice: Choice) -> str:
    """Return the file of a unit's weights, relative to its folder, unless they are to be made of several."""
    return weights_name(snapshot_number(experiment, key, choice))


def is_made_of_powers(experiment: Experiment, key: str, choice: Choice) -> bool:
    """Tell if a unit's weights are made of its power-function averages; of a router without any the usual ones are."""
    training = experiment.router.training if key == ROUTER else experiment.experts.training
    return choice.sigma_rel is not None and training is not None and bool(training.power_ema)


def snapshot_number(experiment: Experiment, key: str, choice: Choice) -> int | None:
    """Return the number of a unit's own snapshot; None where its final weights stand for it.

    That is so for a router without snapshots, and for an expert that joined and ended before.
    """
    number = _own_of(experiment, key, choice.snapshot)
    # The images of the monolith depend on FLOPs, but it has all snapshots.
    has_it = number is None or key in (MONOLITH, STUDENT, ROUTER) or number in own_images(experiment, key)
    return number if has_it else None


def _own_of(experiment: Experiment, key: str, number: int | None) -> int | None:
    """Return the router's snapshot that goes with one of the experts, and for other units that one itself."""
    if number is None or key != ROUTER:
        return number
    place = experiment.experts.training.snapshots.index(number)
    own = experiment.router.training.snapshots if experiment.router.training else []
    return own[place] if own else None


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

    The one at just so many images can still be taken. taken: what is known of the snapshots in a state, by number.
    """
    return next(
        (number for number, own in wanted.items() if own < images and taken.get(str(number), {}).get("images") != own),
        None,
    )


def impossible(key: str, number: int, own: int, taken: Mapping[str, Mapping[str, Any]], state: str) -> str:
    """Say that no state can give a snapshot, and the ways out; taken: as in `missing`; state: where the newest lies."""
    before = taken.get(str(number), {}).get("images", own)
    moved = "" if before == own else f" (it was taken at {before}, from other images of router or experts)"
    return (
        f"{key}: snapshot {number}, at {own} images of this unit, is missing{moved}, and {state} lies beyond it;"
        f" take {number} out of `snapshots`, or delete the states beyond it to train that part again"
    )
