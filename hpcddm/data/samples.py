"""Samples of a run for its stages: tars, expert lists, balanced held-out images."""

from collections.abc import Sequence

import numpy as np

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.data import evaluation_set
from hpcddm.data.orders.base import EpochOrder, Turns
from hpcddm.data.orders.settings import OrderSettings
from hpcddm.data.reader import TarReader
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


def clustered(unit: Unit, name: str) -> np.ndarray:
    """Read a list that the stage cluster wrote: of a split ('train', 'heldout') or of one expert ('expert-00')."""
    return np.load(unit.input(CLUSTER, f"{name}.npy"))


def evaluated(unit: Unit, settings: Experiment, split: str = "heldout") -> np.ndarray:
    """Return the samples of a split that the evaluation takes, in its order."""
    return evaluation_samples(clustered(unit, split), settings, class_names(settings, unit.inputs))


def evaluation_samples(samples: np.ndarray, settings: Experiment, names: Sequence[str]) -> np.ndarray:
    """Choose those of a split's samples that the evaluation takes: balanced over classes where there are any.

    names: of the classes. Raises `UserError` when there are too few.
    """
    count = settings.evaluate.images
    if settings.data.num_classes is None:
        return samples[evaluation_set.drawn(len(samples), count, settings.seed)]
    return samples[evaluation_set.balanced(samples["label"], names, count)]
