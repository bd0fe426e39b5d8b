"""Averages of weights, computed after training from stored power-function averages (arXiv 2312.02696)."""

from collections.abc import Mapping
from pathlib import Path

import torch

from hpcddm.config.experiment import Experiment
from hpcddm.errors import require
from hpcddm.files import tensors
from hpcddm.files.tensor_file import TensorSpec
from hpcddm.runs import manifest
from hpcddm.runs.files import SNAPSHOTS
from hpcddm.runs.unit_keys import ROUTER
from hpcddm.runs.weights_files import WeightsChoice, power_average_name, snapshot_number, weights_name
from hpcddm.training.ema import Profile, coefficients, distance, exponent

MAX_DISTANCE = 0.3
"""Largest distance between the profile of a computed average and its target, as a share of the target's norm."""


def average(
    experiment: Experiment, key: str, folder: Path, choice: WeightsChoice, specs: Mapping[str, TensorSpec]
) -> dict[str, torch.Tensor]:
    """Compute the average of relative length `choice.sigma_rel` at a snapshot, or at the end of the training.

    The result is the linear combination of the stored averages up to that point with the nearest profile over time.
    Each file is read once and hashed while it is read. Memory: one model in its own dtype and one in float64.

    Args:
        experiment: Settings of the experiment.
        key: Key of the trained unit.
        folder: Folder of the unit.
        choice: Snapshot and relative length `sigma_rel`.
        specs: Dtypes and shapes of the network's tensors by name.

    Returns:
        Averaged tensors by name, in the dtypes of `specs`.

    Raises:
        UserError: A file does not match the manifest, or the stored averages cannot approximate this length.
    """
    if choice.sigma_rel is None:
        raise ValueError("an average that is made afterwards needs a relative length")
    files, end = _available_profiles(experiment, key, folder, choice)
    profiles, target = list(files.values()), Profile(exponent(choice.sigma_rel), end)
    factors = coefficients(profiles, target)
    error, points = distance(profiles, factors, target), len({profile.images for profile in profiles})
    require(
        error <= MAX_DISTANCE,
        f"{key}: an average of relative length {choice.sigma_rel:g} would be {error:.0%} off; name one nearer to"
        f" power_ema, or train with more `snapshots`: averages were kept at {points} points",
    )
    totals: dict[str, torch.Tensor] = {}
    for name, factor in zip(files, factors, strict=True):
        with tensors.open_weights(folder / name) as file:
            file.require(specs)
            _add(totals, tensors.read(file, specs, manifest.recorded_digest(folder, name)), factor)
    return {name: values.to(tensors.DTYPES[specs[name].dtype]) for name, values in totals.items()}


def _available_profiles(
    experiment: Experiment, key: str, folder: Path, choice: WeightsChoice
) -> tuple[dict[str, Profile], int]:
    """Return the files of power-function averages up to the chosen snapshot, and the images seen at this snapshot."""
    training = experiment.router.training if key == ROUTER else experiment.experts.training
    stored = manifest.read(folder)
    if training is None or stored is None:
        raise ValueError(f"{key} has kept no averages")
    number = snapshot_number(experiment, key, choice)
    images = {int(name): snapshot["images"] for name, snapshot in stored.results.get(SNAPSHOTS, {}).items()}
    require(number is None or number in images, f"{folder / manifest.FILE_NAME}: lacks the snapshot {number}")
    end = stored.results["images"] if number is None else images[number]
    require(end > 0, f"{folder / manifest.FILE_NAME}: says that no image was seen")
    # The last snapshot may be the end.
    points: dict[int, int | None] = {count: name for name, count in images.items() if count <= end}
    if number is None:
        points[end] = None
    files = {
        weights_name(name, power_average_name(sigma_rel)): Profile(exponent(sigma_rel), count)
        for count, name in points.items()
        for sigma_rel in training.power_ema
    }
    return files, end


def _add(totals: dict[str, torch.Tensor], average: dict[str, torch.Tensor], factor: float) -> None:
    """Add the tensors of an average in float64; keep the first value of tensors that are not averaged (integers)."""
    for name, values in average.items():
        if not values.is_floating_point():
            totals.setdefault(name, values)
        else:
            totals.setdefault(name, torch.zeros_like(values, dtype=torch.float64)).add_(values.double(), alpha=factor)
