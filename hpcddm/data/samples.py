"""Samples of a run for its stages: tars, expert lists, balanced held-out images."""

from collections.abc import Sequence

import numpy as np
import torch

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.data.batch import NoisyBatches
from hpcddm.data.draws import Draws
from hpcddm.data.orders.base import EpochOrder, Order, Turns
from hpcddm.data.orders.settings import OrderSettings
from hpcddm.data.reader import Reader, TarReader
from hpcddm.errors import UserError
from hpcddm.pipeline.keys import CLUSTER
from hpcddm.pipeline.shard import INDEX, TAR, class_names
from hpcddm.runtime.unit import Unit


def keys_of(unit: Unit, stage: str, split: str) -> list[str]:
    """List the units of a stage that hold a split, in the order of their numbers."""
    keys = [key for key in unit.inputs_of(stage) if key.startswith(f"{stage}/{split}-")]
    return sorted(keys, key=lambda key: int(key.removeprefix(f"{stage}/{split}-")))


def indices(unit: Unit, split: str) -> np.ndarray:
    """Read all samples of a split with their place in the split as `id`, (N,) of dtype `tar.SAMPLE`."""
    keys = keys_of(unit, "shard", split)
    samples = np.concatenate([np.load(unit.input(key, INDEX)) for key in keys])
    samples["id"] = np.arange(len(samples))
    return samples


def reader(unit: Unit, split: str, samples: np.ndarray) -> TarReader:
    """Open a reader of samples of a split."""
    keys = keys_of(unit, "shard", split)
    return TarReader([unit.input(key, TAR) for key in keys], samples)


def order_of(settings: Experiment, seed: int, stream: str, size: int) -> EpochOrder[OrderSettings]:
    """Return the order of `data.order` for a training on so many samples."""
    return plugins.create(EpochOrder, settings.data.order, seed, stream, size)


def balanced_order(settings: Experiment, stream: str, clusters: np.ndarray) -> Turns:
    """Return an order that takes the clusters (N,) in turn; within a cluster every row is seen equally often.

    So its images and classes keep their own frequencies.
    """
    present = np.unique(clusters)
    rows = [np.flatnonzero(clusters == cluster) for cluster in present]
    own_orders = [
        order_of(settings, settings.seed, f"{stream}/cluster-{cluster}", len(own))
        for cluster, own in zip(present, rows, strict=True)
    ]
    return Turns(rows, own_orders)


def noisy_batches(settings: Experiment, stream: str, reader: Reader, order: Order | None = None) -> NoisyBatches:
    """Return the batches of a training of denoisers or routers, by default of all rows as `data.order` has them."""
    null_class = settings.data.num_classes
    return NoisyBatches(
        reader,
        order or order_of(settings, settings.seed, stream, len(reader)),
        Draws(settings.seed, stream),
        condition_of=reader.labels,
        null=lambda count: torch.full((count,), null_class),
        dropout=settings.experts.condition_dropout,
        shape=settings.data.x_shape,
    )


def clustered(unit: Unit, name: str) -> np.ndarray:
    """Read a list that the stage cluster wrote: of a split ('train', 'heldout') or of one expert ('expert-00')."""
    return np.load(unit.input(CLUSTER, f"{name}.npy"))


def evaluated(unit: Unit, settings: Experiment, split: str = "heldout") -> np.ndarray:
    """Return the samples of a split that the evaluation takes, in its order."""
    return balanced(clustered(unit, split), class_names(settings, unit.inputs), settings.evaluate.images)


def balanced(samples: np.ndarray, names: Sequence[str], count: int) -> np.ndarray:
    """Select the first `count` samples with class i % num_classes at place i; names: of all classes.

    Raises `UserError` when a class has too few.
    """
    of_class = [np.flatnonzero(samples["label"] == label) for label in range(len(names))]
    needed = count // len(names)
    for label, rows in enumerate(of_class):
        if len(rows) < needed:
            raise UserError(
                f"evaluate.images: {count} images need {needed} of class {names[label]}, there are {len(rows)};"
                f" at most {min(map(len, of_class)) * len(names)} can be balanced"
            )
    return samples[np.stack([rows[:needed] for rows in of_class], axis=1).reshape(-1)]
