"""Files of the weights that a training keeps: at its end and at each snapshot, with one or several averages.

A snapshot is named by the experiment's number of images, which counts all experts together; `resolve_training` converts
that number to a unit's images. The router has its own numbers: its first snapshot corresponds to the experts' first
snapshot, and so on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.runs.files import SNAPSHOTS, WEIGHTS
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.unit_keys import ROUTER
from hpcddm.runs.unit_training import ResolvedTraining, UnitTraining, resolve_training

SUFFIX = ".safetensors"


@dataclass(frozen=True)
class WeightsChoice:
    """Selection among the weights that trainings have kept; by default the usual average at the end."""

    snapshot: int | None = None
    """Snapshot, by the experiment's number of images; None for the end of the training."""
    sigma_rel: float | None = None
    """Relative length of an average computed from the power-function averages; None for the usual average."""

    def __str__(self) -> str:
        parts = {
            "after {:,} images of all experts together": self.snapshot,
            "averaged afterwards to a relative length of {:g}": self.sigma_rel,
        }
        return ", ".join(text.format(value) for text, value in parts.items() if value is not None)


FINAL = WeightsChoice()


def selected_weights(experiment: Experiment) -> WeightsChoice:
    """Return the weights that the experiment evaluates."""
    return WeightsChoice(experiment.evaluate.snapshot, experiment.evaluate.sigma_rel)


USUAL = "ema"
"""Name of the average of `ema_halflife_images`."""


def power_average_name(sigma_rel: float) -> str:
    """Return the name of the power-function average of relative length `sigma_rel`."""
    return f"power-{sigma_rel:g}"


def weights_name(number: int | None, average: str = USUAL) -> str:
    """Return the path of a file of averaged weights, relative to the unit's folder.

    Args:
        number: The experiment's number of images at a snapshot; None for the end of the training.
        average: Name of the average.

    Examples:
        >>> weights_name(None), weights_name(4096, power_average_name(0.05))
        ('weights.safetensors', 'snapshots/images-000000004096-power-0.05.safetensors')
    """
    if number is None:
        return WEIGHTS if average == USUAL else f"weights-{average}{SUFFIX}"
    stem = f"{SNAPSHOTS}/images-{number:012d}"
    return f"{stem}{SUFFIX}" if average == USUAL else f"{stem}-{average}{SUFFIX}"


def weights_names(training: UnitTraining) -> list[str]:
    """List the files of weights that a training writes, relative to its folder: at the end, then at every snapshot."""
    averages = [USUAL, *map(power_average_name, training.power_ema)]
    return [weights_name(number, average) for number in (None, *training.snapshot_numbers) for average in averages]


def weights_file(experiment: Experiment, key: str, choice: WeightsChoice) -> str:
    """Return the file with a unit's usual average for a choice, relative to the unit's folder."""
    return weights_name(snapshot_number(experiment, key, choice))


def uses_power_averages(experiment: Experiment, key: str, choice: WeightsChoice) -> bool:
    """Return True if a unit's weights are computed from its power-function averages.

    A router without power-function averages uses its usual average instead.
    """
    training = experiment.router.training if key == ROUTER else experiment.experts.training
    return choice.sigma_rel is not None and training is not None and bool(training.power_ema)


def snapshot_number(experiment: Experiment, key: str, choice: WeightsChoice) -> int | None:
    """Return the number of the snapshot that a choice means for a unit; None for the unit's final weights.

    A router without snapshots uses its final weights, and so does an extra expert whose training ended earlier.
    """
    number = _unit_snapshot(experiment, key, choice.snapshot)
    if number is None or number not in resolve_training(experiment, key).settings.by_experiment_number:
        return None
    return number


def _unit_snapshot(experiment: Experiment, key: str, number: int | None) -> int | None:
    """Return the router's snapshot that corresponds to one of the experts; other units use that number itself."""
    if number is None or key != ROUTER:
        return number
    place = experiment.experts.training.snapshots.index(number)
    own = experiment.router.training.snapshots if experiment.router.training else []
    return own[place] if own else None


def training_costs(training: ResolvedTraining, flops_before: int = 0) -> dict[str, Any]:
    """Return the results about images and training FLOPs for a unit's manifest, at the end and at every snapshot.

    Args:
        training: Training of the unit, with its FLOPs per image.
        flops_before: FLOPs spent before the training, which count for every snapshot.
    """

    def at(images: int) -> dict[str, int]:
        return {"images": images, "train_flops": images * training.flops_per_image + flops_before}

    of_each = {str(number): at(images) for number, images in training.settings.by_experiment_number.items()}
    return at(training.settings.images) | ({SNAPSHOTS: of_each} if of_each else {})


def selected_training_costs(experiment: Experiment, key: str, unit: Manifest) -> dict[str, Any]:
    """Return `images` and `train_flops` of the unit's weights that the experiment evaluates."""
    number = snapshot_number(experiment, key, selected_weights(experiment))
    return unit.results if number is None else unit.results[SNAPSHOTS][str(number)]


def first_missing_snapshot(
    taken: Mapping[str, Mapping[str, Any]], images: int, wanted: Mapping[int, int]
) -> int | None:
    """Return the number of the first snapshot that a training has missed; None if it has missed none.

    Args:
        taken: Snapshots that the training state lists, by number.
        images: Number of images at the training state; a snapshot at this number can still be taken.
        wanted: Images of this unit at each requested snapshot, by number.
    """
    return next(
        (number for number, own in wanted.items() if own < images and taken.get(str(number), {}).get("images") != own),
        None,
    )


def missing_snapshot_error(key: str, number: int, own: int, taken: Mapping[str, Mapping[str, Any]], state: str) -> str:
    """Return the error message about a snapshot that no training state can provide.

    Args:
        key: The unit.
        number: Number of the snapshot.
        own: Images of this unit at the snapshot.
        taken: Snapshots that the training state lists, by number.
        state: Path of the newest training state.
    """
    before = taken.get(str(number), {}).get("images", own)
    moved = "" if before == own else f" (it was taken at {before}, from other images of router or experts)"
    return (
        f"{key}: snapshot {number}, at {own} images of this unit, is missing{moved}, and {state} is beyond it;"
        f" take {number} out of `snapshots`, or delete the states beyond it to train that part again"
    )
