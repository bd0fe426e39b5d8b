"""Inputs of trainings and measurements: images or latents, depending on the experiment's space, and noisy batches."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from hpcddm.config.experiment import Experiment
from hpcddm.config.spaces import SpaceSettings
from hpcddm.data import run_samples
from hpcddm.data.augmentations import base as augmentations
from hpcddm.data.batch import BatchInputs, NoisyBatches, PixelInputs
from hpcddm.data.columns import Numbers
from hpcddm.data.latent_moments import LatentInputs
from hpcddm.data.orders.base import Order
from hpcddm.data.reader import Reader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.spaces.base import Space
from hpcddm.jobs.unit import Unit
from hpcddm.randomness.keyed import RandomDraws
from hpcddm.randomness.streams import of_training
from hpcddm.runs.unit_training import has_mirrored_latents


def training_inputs(
    experiment: Experiment, unit: Unit, split: str, reader: Reader, is_augmented: bool = True
) -> BatchInputs:
    """Return the inputs of a training: images with the augmentations of `data.augmentations`, or sampled latents.

    Args:
        experiment: Settings of the experiment.
        unit: Unit under training.
        split: Split of the samples, such as 'train'.
        reader: Reader of the split.
        is_augmented: False for the samples as they are.
    """
    data = experiment.data
    if data.space.reads_latents:
        catalog = run_samples.open_unit_catalog(unit, split)
        is_mirrored = is_augmented and has_mirrored_latents(experiment)
        mirrored = run_samples.mirrored_latents(catalog) if is_mirrored else None
        return LatentInputs(run_samples.latents(catalog), mirrored)
    changes = augmentations.create_augmentations(data.augmentations, data.image_size) if is_augmented else ()
    return PixelInputs(reader, changes)


def noisy_batches(
    experiment: Experiment, unit: Unit, reader: Reader, inputs: BatchInputs, order: Order | None = None
) -> NoisyBatches:
    """Return the batches of a unit's training.

    Args:
        experiment: Settings of the experiment.
        unit: Unit under training.
        reader: Reader of the samples.
        inputs: Inputs of the training, from `training_inputs`.
        order: Order of the samples; by default the order from `data.order` over the whole reader.
    """
    stream = of_training(unit.key)
    data, condition = experiment.data, conditions.create_condition(experiment.data, unit.input)
    return NoisyBatches(
        reader,
        order or run_samples.order_of(experiment, experiment.seed, stream, len(reader)),
        RandomDraws(experiment.seed, stream),
        condition_of=partial(condition.to_batch, reader),
        condition_on_device=condition.from_batch,
        dropout=experiment.experts.condition_dropout,
        shape=data.x_shape,
        inputs=inputs,
    )


def x0_of(
    experiment: Experiment, unit: Unit, split: str, reader: Reader, space: Space[SpaceSettings], stream: str = ""
) -> Callable[[Numbers], torch.Tensor]:
    """Return a function from sample numbers (N,) to x0 (N, C, H, W), without augmentations.

    Args:
        experiment: Settings of the experiment.
        unit: Unit that reads the samples.
        split: Split of the samples, such as 'heldout'.
        reader: Reader of the split.
        space: Space of x.
        stream: Name of the random numbers that sample latents; by default that of the unit.
    """
    stream = f"{stream or of_training(unit.key)}/{split}"
    inputs = training_inputs(experiment, unit, split, reader, is_augmented=False)
    draws = RandomDraws(experiment.seed, stream)
    return lambda numbers: space.from_batch(inputs.read(np.asarray(numbers).tolist(), numbers, draws))
