"""Samples of a finished run outside any stage: what the verb sample draws."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from hpcddm.config import Experiment
from hpcddm.data.reader import to_images
from hpcddm.ensemble.sampler import sample
from hpcddm.pipeline import CLUSTER
from hpcddm.rundir.layout import RunDir
from hpcddm.stages import networks


def draw(
    settings: Experiment, run: RunDir, arm: str, classes: Sequence[int], seed: int, advance: Callable[[int], None]
) -> np.ndarray:
    """Images of the given classes, uint8 (N, H, W, C), in the batches of the evaluation.

    The oracle takes for image i the cluster of the i-th held-out image of its class.
    """
    data, evaluate, device = settings.data, settings.evaluate, networks.device()
    members = networks.load_members(settings, run.unit, device)
    clusters = oracle_clusters(np.load(run.unit(CLUSTER) / "heldout.npy"), classes)
    shape = (data.channels, data.image_size, data.image_size)
    blocks = []
    for start in range(0, len(classes), evaluate.batch):
        rows = range(start, min(start + evaluate.batch, len(classes)))
        labels = torch.tensor([classes[row] for row in rows], device=device)
        field = members.field(arm, evaluate.guidance, torch.from_numpy(clusters[rows.start : rows.stop]).to(device))
        blocks.append(to_images(sample(field, seed, rows, labels, shape, evaluate.steps)))
        advance(len(rows))
    return np.concatenate(blocks)


def oracle_clusters(heldout: np.ndarray, classes: Sequence[int]) -> np.ndarray:
    """For each class, the cluster of the next held-out image of that class, round and round: int64 (N,)."""
    of_class = {label: heldout["cluster"][heldout["label"] == label] for label in set(classes)}
    seen = dict.fromkeys(of_class, 0)
    found = []
    for label in classes:
        found.append(int(of_class[label][seen[label] % len(of_class[label])]))
        seen[label] += 1
    return np.array(found, dtype=np.int64)
