"""Inputs of trainings and measures: images or drawn latents of samples, as the space of the experiment has it."""

from collections.abc import Callable

import numpy as np
import torch

from hpcddm.config.experiment import Experiment
from hpcddm.config.spaces import SpaceSettings
from hpcddm.data import samples
from hpcddm.data.augmentations import base as augmentations
from hpcddm.data.batch import Inputs, PixelInputs
from hpcddm.data.columns import Numbers
from hpcddm.data.draws import Draws
from hpcddm.data.latents import LatentInputs
from hpcddm.data.reader import Reader
from hpcddm.diffusion.spaces.base import Space
from hpcddm.jobs.unit import Unit
from hpcddm.runs.unit_settings import has_mirrored


def training_inputs(settings: Experiment, unit: Unit, split: str, reader: Reader) -> Inputs:
    """Return what a training on a split sees: images as `data.augmentations` changes them, or drawn latents."""
    data = settings.data
    if data.space.reads_latents:
        catalog = samples.catalog(unit, split)
        return LatentInputs(samples.latents(catalog), samples.mirrored(catalog) if has_mirrored(settings) else None)
    return PixelInputs(reader, augmentations.created(data.augmentations, data.image_size))


def x0_of(
    settings: Experiment, unit: Unit, split: str, reader: Reader, space: Space[SpaceSettings]
) -> Callable[[Numbers], torch.Tensor]:
    """Return a function from numbers of samples to their x0 (N, C, H, W), without augmentations; latents are drawn."""
    inputs, draws = _unchanged(settings, unit, split, reader), Draws(settings.seed, f"{unit.key}/{split}")
    return lambda numbers: space.of_batch(inputs.read(np.asarray(numbers).tolist(), numbers, draws))


def _unchanged(settings: Experiment, unit: Unit, split: str, reader: Reader) -> Inputs:
    if settings.data.space.reads_latents:
        return LatentInputs(samples.latents(samples.catalog(unit, split)))
    return PixelInputs(reader)
