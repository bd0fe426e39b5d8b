"""Stage critics: two classifiers trained on real images, the extractor of the distances and the judge."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from hpcddm import plugins
from hpcddm.config import ClassifierSettings, Experiment
from hpcddm.data import noise
from hpcddm.data.reader import TarReader, to_tensor
from hpcddm.runtime.unit import Result, Unit
from hpcddm.stages import samples as sample_lists
from hpcddm.training.loop import Batch, Task, load_weights, train

IMAGES_AT_ONCE = 500


def run(settings: Experiment, unit: Unit, num_units: int) -> Result:
    """Train one classifier on the training images and measure it on the held-out ones."""
    critic: ClassifierSettings = getattr(settings.critics, unit.name)
    reader = sample_lists.reader(unit, "train", sample_lists.indices(unit, "train"))
    training = critic.training
    training = training.model_copy(update={"images": math.ceil(training.images / training.batch) * training.batch})
    task = Task(unit.key, critic.seed, lambda: build(settings, critic), _loss(critic, unit.key), reader)
    trained = train(task, training, unit)
    facts = trained.facts | {"images": training.images}
    if unit.ranks.rank == 0:
        model = load_weights(build(settings, critic), unit.folder)
        heldout = sample_lists.reader(unit, "heldout", sample_lists.indices(unit, "heldout"))
        facts["heldout_accuracy"] = _accuracy(model, heldout)
    return Result(trained.outputs, facts)


def build(settings: Experiment, critic: ClassifierSettings) -> nn.Module:
    """A freshly initialised classifier."""
    return plugins.load("models", critic.model.name).build(critic.model, settings.data, settings.data.num_classes)


def _loss(critic: ClassifierSettings, stream: str) -> Callable:
    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        images = _moved(batch, critic, stream)
        return F.cross_entropy(model(images), batch.labels, reduction="none")

    return loss


def _moved(batch: Batch, critic: ClassifierSettings, stream: str) -> torch.Tensor:
    """The images (N, C, H, W), each shifted and mirrored by its own random numbers; the border repeats."""
    images, size = batch.x0, batch.x0.shape[-1]
    rows, columns = (
        noise.uniform(critic.seed, f"{stream}/{axis}", batch.places).mul(2 * critic.shift + 1).long() - critic.shift
        for axis in ("down", "right")
    )
    steps = torch.arange(size)
    rows = (rows[:, None] + steps).clamp(0, size - 1)[:, None, :, None]
    columns = (columns[:, None] + steps).clamp(0, size - 1)
    if critic.mirror:
        mirrored = noise.uniform(critic.seed, f"{stream}/mirror", batch.places) < 0.5
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
