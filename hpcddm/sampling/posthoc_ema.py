"""Averages of weights made after a training, of the power-function averages that it kept (arXiv 2312.02696)."""

from collections.abc import Mapping
from pathlib import Path

import torch

from hpcddm.config.experiment import Experiment
from hpcddm.errors import require
from hpcddm.files import tensors
from hpcddm.files.tensor_file import Form
from hpcddm.runs import manifest
from hpcddm.runs.manifest import SNAPSHOTS
from hpcddm.runs.unit_keys import ROUTER
from hpcddm.runs.weights_files import Choice, power_average, snapshot_number, weights_name
from hpcddm.training.power_ema import Profile, coefficients, distance, exponent

FARTHEST = 0.3
"""Largest distance of the profile of an average that is made afterwards, as a share of the norm of the wanted one."""


def average(
    settings: Experiment, key: str, folder: Path, choice: Choice, forms: Mapping[str, Form]
) -> dict[str, torch.Tensor]:
    """Make the average of `choice.sigma_rel` at the snapshot of `choice`, or at the end: fp32 tensors by name.

    folder: the unit's; forms: those of the network's tensors. It is the sum of the averages that were kept up to then
    whose profile over time is nearest.
    Raises `UserError` where a file is not what the manifest names. Each is read once, hashed as it is read: costs one
    model of memory, and one in float64.
    """
    if choice.sigma_rel is None:
        raise ValueError("an average that is made afterwards needs a relative length")
    files, end = _kept(settings, key, folder, choice)
    profiles, wanted = list(files.values()), Profile(exponent(choice.sigma_rel), end)
    factors = coefficients(profiles, wanted)
    off, points = distance(profiles, factors, wanted), len({profile.images for profile in profiles})
    require(
        off <= FARTHEST,
        f"{key}: an average of relative length {choice.sigma_rel:g} would be {off:.0%} off; name one nearer to"
        f" power_ema, or train with more `snapshots`: averages were kept at {points} points",
    )
    totals: dict[str, torch.Tensor] = {}
    for name, factor in zip(files, factors, strict=True):
        with tensors.opened(folder / name) as file:
            file.require(forms)
            _add(totals, tensors.read(file, forms, manifest.stated_digest(folder, name)), factor)
    return {name: values.to(tensors.DTYPES[forms[name].dtype]) for name, values in totals.items()}


def _kept(settings: Experiment, key: str, folder: Path, choice: Choice) -> tuple[dict[str, Profile], int]:
    """List the files of power-function averages up to the chosen snapshot, and the images of the unit at it."""
    training = settings.router.training if key == ROUTER else settings.experts.training
    listed = manifest.read(folder)
    if training is None or listed is None:
        raise ValueError(f"{key} has kept no averages")
    number = snapshot_number(settings, key, choice)
    images = {int(name): kept["images"] for name, kept in listed.results.get(SNAPSHOTS, {}).items()}
    require(number is None or number in images, f"{folder / manifest.FILE_NAME}: lacks the snapshot {number}")
    end = listed.results["images"] if number is None else images[number]
    require(end > 0, f"{folder / manifest.FILE_NAME}: says that no image was seen")
    # The last snapshot may be the end.
    points: dict[int, int | None] = {own: name for name, own in images.items() if own <= end}
    if number is None:
        points[end] = None
    files = {
        weights_name(name, power_average(sigma_rel)): Profile(exponent(sigma_rel), own)
        for own, name in points.items()
        for sigma_rel in training.power_ema
    }
    return files, end


def _add(totals: dict[str, torch.Tensor], average: dict[str, torch.Tensor], factor: float) -> None:
    """Add the tensors of an average in float64; of those that are no averages, as integers, the first stay."""
    for name, values in average.items():
        if not values.is_floating_point():
            totals.setdefault(name, values)
        else:
            totals.setdefault(name, torch.zeros_like(values, dtype=torch.float64)).add_(values.double(), alpha=factor)
