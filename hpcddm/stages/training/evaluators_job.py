"""Stage evaluators: two networks trained on real images, the extractor of the distances and the classifier."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.config.experiment import ClassifierSettings, Experiment
from hpcddm.data import run_samples
from hpcddm.data.augmentations import flip, shift
from hpcddm.data.augmentations.base import Augmentation
from hpcddm.data.augmentations.flip import Flip
from hpcddm.data.augmentations.shift import Shift
from hpcddm.data.batch import LabelledBatch, LabelledBatches, PixelInputs, RotatedBatches, rotate
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.reader import CatalogReader
from hpcddm.errors import require
from hpcddm.files import atomic, tensors
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_classifier
from hpcddm.randomness.keyed import RandomDraws
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.initial_weights import open_weights
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.unit_keys import unit_name
from hpcddm.runs.unit_training import NUM_ROTATIONS, evaluator_settings, resolve_training
from hpcddm.stages.workload import Work, Workload
from hpcddm.training.loop import Task, load_weights, train
from hpcddm.training.meters import diverged_error, varies

IMAGES_AT_ONCE = 500


def run(experiment: Experiment, unit: Unit) -> Result:
    """Train one classifier on the training images and measure it on the held-out ones.

    Where the images have no classes it tells by how many quarters of a turn an image is turned. One that is given is
    only measured.
    """
    network = evaluator_settings(experiment, unit.key)
    make = _trained if network.pretrained is None else _copy_pretrained
    trained = make(experiment, network, unit)
    if unit.ranks.rank == 0:
        model = load_weights(build_classifier.build(experiment, unit.key), unit.folder)
        heldout, to_model = run_samples.open_reader(unit, HELDOUT), build_classifier.pixels(experiment).to_model
        accuracy, is_alive = _accuracy(model, to_model, heldout, experiment.data.num_classes is not None)
        advice = f"{unit.key}: the given network answers the same for all held-out images; name other weights"
        require(is_alive or network.pretrained is None, advice)
        if not is_alive:
            raise diverged_error(unit.key, "the network answers the same for all held-out images", network.training)
        trained.results["heldout_accuracy"] = accuracy
    return trained


def _trained(experiment: Experiment, network: ClassifierSettings, unit: Unit) -> Result:
    """Train the network."""
    training, build = resolve_training(experiment, unit.key), partial(build_classifier.build, experiment, unit.key)
    counted = replace(training, flops_per_image=build_classifier.train_flops(experiment, unit.key))
    kind = RotatedBatches if experiment.data.num_classes is None else LabelledBatches
    to_model = build_classifier.pixels(experiment).to_model
    with run_samples.training_reader(experiment, unit) as reader:
        order = run_samples.order_of(experiment, training.seed, training.stream, len(reader))
        inputs = PixelInputs(reader, _augmentations(network, experiment.data.image_size))
        batches = kind(reader, order, RandomDraws(training.seed, training.stream), inputs=inputs)
        trained = train(Task(build, _loss, batches, to_model), counted, unit)
    return Result(trained.outputs, trained.results | {"images": training.settings.images})


def _copy_pretrained(experiment: Experiment, network: ClassifierSettings, unit: Unit) -> Result:
    """Copy the weights of `pretrained`; raises `UserError` naming the file where they are not this network's."""
    given = network.pretrained
    if given is None:
        raise ValueError(f"{unit.key}: no weights are given")
    if unit.ranks.rank == 0:
        path, own = (unit.run.root / given.weights).resolve(), build_classifier.build(experiment, unit.key).state_dict()
        place = f"evaluators.{unit_name(unit.key)}"
        with open_weights(path) as file:
            require(
                file.forms == tensors.tensor_specs(own),
                f"{path}: not the weights of {place}.model; change that, or name other weights in {place}.pretrained",
            )
            with atomic.replacing(unit.folder / WEIGHTS) as staged:
                atomic.require_submitted(path, given.content_hash, file.copy(staged))
    return Result([WEIGHTS], {"images": 0})


def work(workload: Workload, key: str) -> list[Work]:
    """List the training and the measurement on the held-out images."""
    name = unit_name(key)
    network = evaluator_settings(workload.experiment, key)
    heldout = Work(name, False, workload.counts["heldout"], IMAGES_AT_ONCE)
    trained = [] if network.pretrained else [workload.training(name, key)]
    return [*trained, heldout]


def _augmentations(network: ClassifierSettings, side: int) -> list[Augmentation]:
    """Return what `shift` and `mirror` of an evaluator do to its training images."""
    moved = [Shift(shift.ShiftSettings(name="shift", max_pixels=network.shift), side)] if network.shift else []
    return [*moved, *([Flip(flip.FlipSettings(name="flip"), side)] if network.mirror else [])]


def _loss(model: nn.Module, batch: LabelledBatch) -> torch.Tensor:
    # Convolutions of channels-last images, as in a file, differ in their last bits.
    images = batch.x0.clone(memory_format=torch.contiguous_format)
    return F.cross_entropy(model(images), batch.labels, reduction="none")


@torch.no_grad()
def _accuracy(
    model: nn.Module, to_model: Callable[[torch.Tensor], torch.Tensor], reader: CatalogReader, has_classes: bool
) -> tuple[float, bool]:
    """Compute the share of images whose class the model names, and tell if its output differs among images.

    Without classes, image i is turned i times.
    """
    right, answers, seen = 0, [], []
    for block in split_into_blocks(range(len(reader)), IMAGES_AT_ONCE):
        images = torch.from_numpy(reader.images(block))
        labels = reader.labels(block) if has_classes else torch.arange(block.start, block.stop) % NUM_ROTATIONS
        images = images if has_classes else rotate(images, labels)
        logits = model(to_model(images))
        answers.append(logits.numpy())
        seen.append(images[:1].flatten(1).numpy())
        right += (logits.argmax(1) == labels).sum().item()
    is_alive = varies(np.concatenate(answers)) or not varies(np.concatenate([*seen, images.flatten(1).numpy()]))
    return right / len(reader), is_alive
