"""Averages of weights made after a training, of the power-function averages that it kept (arXiv 2312.02696)."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import torch

from hpcddm import tensors
from hpcddm.config import Experiment
from hpcddm.errors import require
from hpcddm.pipeline.keys import ROUTER
from hpcddm.pipeline.snapshots import Choice, power_average, snapshot_number, weights_name
from hpcddm.rundir import manifest
from hpcddm.rundir.manifest import SNAPSHOTS
from hpcddm.rundir.tensor_file import Form
from hpcddm.training.power_ema import Profile, coefficients, distance, exponent

FARTHEST = 0.3
"""Largest distance of the profile of an average that is made afterwards, as a share of the norm of the wanted one."""


def average(
    settings: Experiment, key: str, folder: Path, choice: Choice, forms: Mapping[str, Form]
) -> dict[str, torch.Tensor]:
    """Make the average of `choice.sigma_rel` at the snapshot of `choice`, or at the end: fp32 tensors by name.

    folder: the unit's; forms: those of the network's tensors. It is the sum of the averages that were kept up to then
    whose profile over time is nearest.
    Raises `UserError` where a file is not what the manifest names. Costs one model of memory, and a tensor in float64.
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
    with ExitStack() as stack:
        opened = [stack.enter_context(tensors.opened(folder / name)) for name in files]
        for name, file in zip(files, opened, strict=True):
            file.require(forms)
            tensors.fill({}, file, manifest.stated_digest(folder, name))
        return {name: _sum([tensors.read_whole(file, name) for file in opened], factors) for name in forms}


def _kept(settings: Experiment, key: str, folder: Path, choice: Choice) -> tuple[dict[str, Profile], int]:
    """List the files of power-function averages up to the chosen snapshot, and the images of the unit at it."""
    training = settings.router.training if key == ROUTER else settings.experts.training
    listed = manifest.read(folder)
    if training is None or listed is None:
        raise ValueError(f"{key} has kept no averages")
    number = snapshot_number(settings, key, choice)
    images = {int(name): kept["images"] for name, kept in listed.results.get(SNAPSHOTS, {}).items()}
    end = listed.results["images"] if number is None else images[number]
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


def _sum(tensors: list[torch.Tensor], factors: list[float]) -> torch.Tensor:
    """Add up tensors in float64; those that are no averages, as integers, stay."""
    if not tensors[0].is_floating_point():
        return tensors[0]
    total = torch.zeros_like(tensors[0], dtype=torch.float64)
    for tensor, factor in zip(tensors, factors, strict=True):
        total.add_(tensor.double(), alpha=factor)
    return total.to(tensors[0].dtype)
