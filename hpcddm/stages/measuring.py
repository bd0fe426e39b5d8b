"""Stage measuring: two networks trained on real images, the extractor of the distances and the classifier."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.config import ClassifierSettings, Experiment
from hpcddm.data import noise
from hpcddm.data import samples as sample_lists
from hpcddm.data.batch import Batch
from hpcddm.data.reader import TarReader, to_tensor
from hpcddm.networks import budgets, measuring
from hpcddm.networks.workload import Work, Workload
from hpcddm.pipeline.keys import CLASSIFIER, EXTRACTOR, name_of
from hpcddm.pipeline.measuring import network_settings
from hpcddm.runtime.unit import Result, Unit
from hpcddm.training.loop import Task, load_weights, train

IMAGES_AT_ONCE = 500
STREAMS = {EXTRACTOR: "critics/extractor", CLASSIFIER: "critics/judge"}
"""Streams of random numbers; with other names, such as those of the units today, every trained network would change."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Train one classifier on the training images and measure it on the held-out ones."""
    network = network_settings(settings, unit.key)
    reader = sample_lists.reader(unit, "train", sample_lists.indices(unit, "train"))
    training, stream = budgets.in_whole_batches(network.training), STREAMS[unit.key]
    build, flops = partial(measuring.build, settings, unit.key), partial(measuring.train_flops, settings, unit.key)
    task = Task(stream, network.seed, build, _loss(network, stream), reader, flops_per_image=flops)
    trained = train(task, training, unit)
    results = trained.results | {"images": training.images}
    if unit.ranks.rank == 0:
        model = load_weights(measuring.build(settings, unit.key), unit.folder)
        heldout = sample_lists.reader(unit, "heldout", sample_lists.indices(unit, "heldout"))
        results["heldout_accuracy"] = _accuracy(model, heldout)
    return Result(trained.outputs, results)


def work(workload: Workload, key: str) -> list[Work]:
    """List the training and the measurement on the held-out images."""
    name = name_of(key)
    training = budgets.in_whole_batches(network_settings(workload.settings, key).training)
    heldout = Work(name, False, workload.counts["heldout"], IMAGES_AT_ONCE)
    return [Work(name, True, training.images, training.batch), heldout]


def _loss(network: ClassifierSettings, stream: str) -> Callable:
    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        images = _moved(batch, network, stream)
        return F.cross_entropy(model(images), batch.labels, reduction="none")

    return loss


def _moved(batch: Batch, network: ClassifierSettings, stream: str) -> torch.Tensor:
    """Shift and mirror every image (N, C, H, W) by its own random numbers; the border repeats."""
    images, size = batch.x0, batch.x0.shape[-1]
    rows, columns = (
        noise.uniform(network.seed, f"{stream}/{axis}", batch.sample_indices).mul(2 * network.shift + 1).long()
        - network.shift
        for axis in ("down", "right")
    )
    steps = torch.arange(size)
    rows = (rows[:, None] + steps).clamp(0, size - 1)[:, None, :, None]
    columns = (columns[:, None] + steps).clamp(0, size - 1)
    if network.mirror:
        mirrored = noise.uniform(network.seed, f"{stream}/mirror", batch.sample_indices) < 0.5
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    number, channel = torch.arange(len(images)), torch.arange(images.shape[1])
    return images[number[:, None, None, None], channel[:, None, None], rows, columns[:, None, None, :]]


@torch.no_grad()
def _accuracy(model: nn.Module, reader: TarReader) -> float:
    right = 0
    for start in range(0, len(reader), IMAGES_AT_ONCE):
        rows = range(start, min(start + IMAGES_AT_ONCE, len(reader)))
        right += (model(to_tensor(reader.images(rows))).argmax(1) == reader.labels(rows)).sum().item()
    return right / len(reader)
