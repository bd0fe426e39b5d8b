"""Stage autoencoder: the autoencoder of a space of latents, trained on the run's images."""

from functools import partial

import torch
from torch import nn

from hpcddm.config.experiment import Experiment
from hpcddm.data import samples
from hpcddm.data.augmentations import base as augmentations
from hpcddm.data.batch import LatentBatch, LatentBatches, PixelInputs
from hpcddm.data.catalog import blocks_of
from hpcddm.data.draws import Draws
from hpcddm.diffusion.spaces.pixels import from_unit, to_unit
from hpcddm.jobs.devices import current_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_autoencoder
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.unit_settings import trained_autoencoder
from hpcddm.stages.workload import AUTOENCODER, ENCODE_LATENTS, Work, Workload
from hpcddm.training.loop import Task, train

SEED = 0
"""Seed of network and order; not the experiment's, whose seeds share one autoencoder."""
IMAGES_AT_ONCE = 64
MEASURED_IMAGES = 512
"""Largest number of held-out images that are encoded and decoded to measure the autoencoder."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Train the autoencoder on all training images, and measure what it loses of held-out ones."""
    data, (_, training) = settings.data, trained_autoencoder(settings)
    build, flops = partial(build_autoencoder.network, settings), partial(build_autoencoder.train_flops, settings)
    with samples.training_reader(settings, unit, augmented=data.augmentations) as reader:
        order, draws = samples.order_of(settings, SEED, unit.key, len(reader)), Draws(SEED, unit.key)
        inputs = PixelInputs(reader, augmentations.created(data.augmentations, data.image_size))
        batches = LatentBatches(reader, order, draws, data.x_shape, inputs)
        trained = train(Task(SEED, build, _loss, batches, to_unit, flops_per_image=flops), training, unit)
    results: dict[str, float] = {"images": training.images, "train_flops": training.images * flops()}
    if unit.ranks.rank == 0:
        results["heldout_psnr"] = _psnr(settings, unit)
    return Result(trained.outputs, trained.results | results)


def work(workload: Workload, key: str) -> list[Work]:
    """List the training, and the measurement on held-out images."""
    training = trained_autoencoder(workload.settings)[1]
    measured = min(workload.counts[HELDOUT], MEASURED_IMAGES)
    return [
        Work(AUTOENCODER, True, training.images, training.batch),
        Work(ENCODE_LATENTS, False, measured, IMAGES_AT_ONCE),
    ]


def _loss(model: nn.Module, batch: LatentBatch) -> torch.Tensor:
    return model(batch.x0, batch.noise)


@torch.no_grad()
def _psnr(settings: Experiment, unit: Unit) -> float:
    """Compute the peak signal-to-noise ratio of held-out images in dB, over their whole pixel values."""
    autoencoder = build_autoencoder.load(settings, unit.folder / WEIGHTS)
    reader, squares, values = samples.reader(unit, HELDOUT), 0.0, 0
    for block in blocks_of(range(min(len(reader), MEASURED_IMAGES)), IMAGES_AT_ONCE):
        unit.stop_if_requested()
        images = torch.from_numpy(reader.images(block))
        moments = autoencoder.encode(to_unit(images.to(current_device())))
        restored = torch.from_numpy(from_unit(autoencoder.decode(moments[:, 0])))
        squares += (images.double() - restored.double()).square().sum().item()
        values += images.numel()
    return float(10 * torch.tensor(255**2 * values / max(squares, 1e-9)).log10())
