"""Stage autoencoder: the autoencoder of a space of latents, trained on the run's images."""

from dataclasses import replace
from functools import partial

import torch
from torch import nn

from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.augmentations import base as augmentations
from hpcddm.data.batch import LatentBatch, LatentBatches, PixelInputs
from hpcddm.data.catalog import split_into_blocks
from hpcddm.diffusion.spaces.pixels import pixels_to_values, values_to_pixels
from hpcddm.jobs.devices import current_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_autoencoder
from hpcddm.randomness.keyed import RandomDraws
from hpcddm.runs import weights_files
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.unit_training import resolve_training
from hpcddm.stages.workload import AUTOENCODER, ENCODE_LATENTS, Work, Workload
from hpcddm.training.loop import Task, train

IMAGES_AT_ONCE = 64
MEASURED_IMAGES = 512
"""Largest number of held-out images that are encoded and decoded to measure the autoencoder."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Train the autoencoder on all training images, and measure its reconstruction error on held-out images."""
    data, build = experiment.data, partial(build_autoencoder.build, experiment)
    training = resolve_training(experiment, unit.key)
    training = replace(training, flops_per_image=build_autoencoder.train_flops(experiment))
    with run_samples.training_reader(experiment, unit, augmentations=data.augmentations) as reader:
        order = run_samples.order_of(experiment, training.seed, training.stream, len(reader))
        inputs = PixelInputs(reader, augmentations.create_augmentations(data.augmentations, data.image_size))
        batches = LatentBatches(reader, order, RandomDraws(training.seed, training.stream), data.x_shape, inputs=inputs)
        trained = train(Task(build, _loss, batches, pixels_to_values), training, unit)
    results = weights_files.training_costs(training)
    if unit.ranks.rank == 0:
        results["heldout_psnr"] = _psnr(experiment, unit)
    return Result(trained.outputs, trained.results | results)


def work(workload: Workload, key: str) -> list[Work]:
    """List the training, and the measurement on held-out images."""
    measured = min(workload.counts[HELDOUT], MEASURED_IMAGES)
    return [workload.training(AUTOENCODER, key), Work(ENCODE_LATENTS, False, measured, IMAGES_AT_ONCE)]


def _loss(model: nn.Module, batch: LatentBatch) -> torch.Tensor:
    return model(batch.x0, batch.noise)


@torch.no_grad()
def _psnr(experiment: Experiment, unit: Unit) -> float:
    """Compute the peak signal-to-noise ratio of held-out images in dB, over their whole pixel values."""
    autoencoder = build_autoencoder.load(experiment, unit.folder / WEIGHTS)
    reader, squares, values = run_samples.open_reader(unit, HELDOUT), 0.0, 0
    for block in split_into_blocks(range(min(len(reader), MEASURED_IMAGES)), IMAGES_AT_ONCE):
        unit.stop_if_requested()
        images = torch.from_numpy(reader.images(block))
        moments = autoencoder.encode(pixels_to_values(images.to(current_device())))
        restored = torch.from_numpy(values_to_pixels(autoencoder.decode(moments[:, 0])))
        squares += (images.double() - restored.double()).square().sum().item()
        values += images.numel()
    return float(10 * torch.tensor(255**2 * values / max(squares, 1e-9)).log10())
