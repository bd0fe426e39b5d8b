"""Samples of a finished run outside any stage, for the verb sample."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch

from hpcddm.config import Experiment
from hpcddm.devices import current_device
from hpcddm.ensemble.sampler import sample
from hpcddm.errors import UserError
from hpcddm.networks import loading
from hpcddm.pipeline.keys import CLUSTER
from hpcddm.pipeline.shard import stored_class_names
from hpcddm.rundir.layout import RunDir
from hpcddm.spaces.base import space_of


def draw(
    settings: Experiment,
    run: RunDir,
    arm: str,
    needed: Collection[str],
    classes: Sequence[int],
    seed: int,
    advance: Callable[[int], None],
) -> np.ndarray:
    """Draw images of the given classes, uint8 (N, H, W, C), in the batches of the evaluation.

    needed: the units that the arm reads and that are there; an ensemble does without an expert that is not among
    them. The arm that reads the clusters, the oracle, takes for image i the cluster of the i-th held-out image of its
    class, and the router's probabilities where the expert of that cluster is missing.
    """
    evaluate, space, device = settings.evaluate, space_of(settings.data), current_device()
    clusters = _oracle_clusters(settings, run, classes).to(device) if CLUSTER in needed else None
    ensemble = loading.load_ensemble(settings, run.unit, needed, device)
    blocks = []
    for start in range(0, len(classes), evaluate.batch):
        rows = range(start, min(start + evaluate.batch, len(classes)))
        labels = torch.tensor([classes[row] for row in rows], device=device)
        batch_clusters = None if clusters is None else clusters[rows.start : rows.stop]
        field = ensemble.field(arm, evaluate, batch_clusters)
        blocks.append(space.to_images(sample(field, seed, rows, labels, space, evaluate)))
        advance(len(rows))
    return np.concatenate(blocks)


def oracle_clusters(heldout: np.ndarray, classes: Sequence[int], names: Sequence[str]) -> np.ndarray:
    """Take for each class the cluster of the next held-out image of that class, cyclically: int64 (N,).

    names: of all classes. Raises `UserError` naming a class that has no held-out image.
    """
    of_class = {label: heldout["cluster"][heldout["label"] == label] for label in set(classes)}
    for label, clusters in sorted(of_class.items()):
        if not len(clusters):
            raise UserError(
                f"the oracle needs a held-out image of class {names[label]}, there is none;"
                " take another --class or --strategy"
            )
    taken = dict.fromkeys(of_class, 0)
    chosen = []
    for label in classes:
        chosen.append(int(of_class[label][taken[label] % len(of_class[label])]))
        taken[label] += 1
    return np.array(chosen, dtype=np.int64)


def _oracle_clusters(settings: Experiment, run: RunDir, classes: Sequence[int]) -> torch.Tensor:
    names = stored_class_names(settings, run)
    return torch.from_numpy(oracle_clusters(np.load(run.unit(CLUSTER) / "heldout.npy"), classes, names))
