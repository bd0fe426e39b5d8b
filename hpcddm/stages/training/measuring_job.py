"""Stage measuring: two networks trained on real images, the extractor of the distances and the classifier."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.config.experiment import ClassifierSettings, Experiment
from hpcddm.data import samples
from hpcddm.data.augmentations import flip, shift
from hpcddm.data.augmentations.base import Augmentation
from hpcddm.data.augmentations.flip import Flip
from hpcddm.data.augmentations.shift import Shift
from hpcddm.data.batch import LabelledBatch, LabelledBatches, PixelInputs, TurnedBatches, turned
from hpcddm.data.catalog import blocks_of
from hpcddm.data.draws import Draws
from hpcddm.data.reader import TarReader
from hpcddm.errors import require
from hpcddm.files import atomic, tensors
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_classifier
from hpcddm.runs import unit_settings
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.initial_weights import opened
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.unit_keys import CLASSIFIER, EXTRACTOR, name_of
from hpcddm.runs.unit_settings import TURNS, network_settings
from hpcddm.stages.workload import Work, Workload
from hpcddm.training.loop import Task, load_weights, train

IMAGES_AT_ONCE = 500
STREAMS = {EXTRACTOR: "critics/extractor", CLASSIFIER: "critics/judge"}
"""Streams of random numbers; with other names, such as those of the units today, every trained network would change."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Train one classifier on the training images and measure it on the held-out ones.

    Where the images have no classes it tells by how many quarters of a turn an image is turned. One that is given is
    only measured.
    """
    network = network_settings(settings, unit.key)
    trained = _trained(settings, network, unit) if network.pretrained is None else _given(settings, network, unit)
    if unit.ranks.rank == 0:
        model = load_weights(build_classifier.build(settings, unit.key), unit.folder)
        heldout, to_model = samples.reader(unit, HELDOUT), build_classifier.pixels(settings).to_model
        accuracy = _accuracy(model, to_model, heldout, settings.data.num_classes is not None)
        trained.results["heldout_accuracy"] = accuracy
    return trained


def _trained(settings: Experiment, network: ClassifierSettings, unit: Unit) -> Result:
    """Train the network."""
    training, stream = unit_settings.in_whole_batches(network.training), STREAMS[unit.key]
    build, flops = (
        partial(build_classifier.build, settings, unit.key),
        partial(build_classifier.train_flops, settings, unit.key),
    )
    kind = TurnedBatches if settings.data.num_classes is None else LabelledBatches
    to_model = build_classifier.pixels(settings).to_model
    with samples.training_reader(settings, unit) as reader:
        order, drawn = samples.order_of(settings, network.seed, stream, len(reader)), Draws(network.seed, stream)
        batches = kind(reader, order, drawn, PixelInputs(reader, _augmentations(network, settings.data.image_size)))
        trained = train(Task(network.seed, build, _loss, batches, to_model, flops_per_image=flops), training, unit)
    return Result(trained.outputs, trained.results | {"images": training.images})


def _given(settings: Experiment, network: ClassifierSettings, unit: Unit) -> Result:
    """Copy the weights of `pretrained`; raises `UserError` naming the file where they are not this network's."""
    given = network.pretrained
    if given is None:
        raise ValueError(f"{unit.key}: no weights are given")
    if unit.ranks.rank == 0:
        path, own = (unit.run.root / given.weights).resolve(), build_classifier.build(settings, unit.key).state_dict()
        place = f"measuring.{name_of(unit.key)}"
        with opened(path) as file:
            require(
                file.forms == tensors.forms(own),
                f"{path}: not the weights of {place}.model; change that, or name other weights in {place}.pretrained",
            )
            with atomic.replacing(unit.folder / WEIGHTS) as staged:
                atomic.require_submitted(path, given.content, file.copy(staged))
    return Result([WEIGHTS], {"images": 0})


def work(workload: Workload, key: str) -> list[Work]:
    """List the training and the measurement on the held-out images."""
    name = name_of(key)
    network = network_settings(workload.settings, key)
    training = unit_settings.in_whole_batches(network.training)
    heldout = Work(name, False, workload.counts["heldout"], IMAGES_AT_ONCE)
    trained = [] if network.pretrained else [Work(name, True, training.images, training.batch)]
    return [*trained, heldout]


def _augmentations(network: ClassifierSettings, side: int) -> list[Augmentation]:
    """Return what `shift` and `mirror` of a measuring network do to its training images."""
    moved: list[Augmentation] = [Shift(shift.Settings(name="shift", most=network.shift), side)] if network.shift else []
    return moved + ([Flip(flip.Settings(name="flip"), side)] if network.mirror else [])


def _loss(model: nn.Module, batch: LabelledBatch) -> torch.Tensor:
    # Of images whose channels lie side by side, as in a file, convolutions have other last bits.
    images = batch.x0.clone(memory_format=torch.contiguous_format)
    return F.cross_entropy(model(images), batch.labels, reduction="none")


@torch.no_grad()
def _accuracy(
    model: nn.Module, to_model: Callable[[torch.Tensor], torch.Tensor], reader: TarReader, has_classes: bool
) -> float:
    """Compute the share of images whose class the model names; without classes, image i is turned i times."""
    right = 0
    for block in blocks_of(range(len(reader)), IMAGES_AT_ONCE):
        images = torch.from_numpy(reader.images(block))
        labels = reader.labels(block) if has_classes else torch.arange(block.start, block.stop) % TURNS
        images = images if has_classes else turned(images, labels)
        right += (model(to_model(images)).argmax(1) == labels).sum().item()
    return right / len(reader)
