"""Finished run of one of the budget sweeps: what its evaluation stored, and the images that it asked for."""

from collections.abc import Collection
from functools import cached_property
from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Int64

import hpcddm
from hpcddm.data.evaluation_set import choose_evaluation_samples
from hpcddm.data.run_samples import CLUSTER, open_catalog
from hpcddm.errors import UserError
from hpcddm.runs.files import EVALUATION, MEASUREMENTS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.run_dir import RunDir

MEASURING = ("measure", "measure_real")


class EvaluatedRun:
    """Run whose evaluation is repeated sample by sample."""

    def __init__(self, root: Path, arms: Collection[str] = (), images: int | None = None) -> None:
        """Open a run; images: the first ones of its evaluation, all by default.

        Raises `UserError` where the evaluation drew none of an arm.
        """
        self.root, self.folder, self.run = root, RunDir(root), hpcddm.open(root)
        settings = self.run.experiment
        missing = [arm for arm in arms if arm not in settings.evaluate.strategies]
        if missing:
            raise UserError(
                f"{root} has no arm {missing[0]}; give a run that draws {' and '.join(arms)} at one guidance scale,"
                " such as those of the sweeps budget_tuning and budget_guidance"
            )
        first = settings.evaluate.first_sample
        self.rows = range(first, first + (images or settings.evaluate.images))

    @cached_property
    def numbers(self) -> np.ndarray:
        """Numbers of the held-out images at the samples' places."""
        catalog = open_catalog(self.folder, HELDOUT)
        return choose_evaluation_samples(catalog, self.run.experiment, self.run.class_names)[self.rows]

    @cached_property
    def labels(self) -> Int64[np.ndarray, " n"]:
        """Classes that are asked for."""
        return np.asarray(self.run.data(HELDOUT).column("label", self.numbers)).astype(np.int64)

    @cached_property
    def clusters(self) -> Int64[np.ndarray, " n"]:
        """Clusters of the held-out images at the samples' places."""
        return np.asarray(self.run.data(HELDOUT).column(CLUSTER, self.numbers)).astype(np.int64)

    @cached_property
    def training_images(self) -> Int64[np.ndarray, "c k"]:
        """Number of training images of every class in every cluster."""
        reader = self.run.data(TRAIN)
        labels, clusters = (np.asarray(reader.column(name, range(len(reader)))) for name in ("label", CLUSTER))
        counts = np.zeros((len(self.run.class_names), self.run.experiment.cluster.experts), dtype=np.int64)
        np.add.at(counts, (labels.astype(np.int64), clusters.astype(np.int64)), 1)
        return counts

    def stored(self, what: str) -> dict[str, np.ndarray]:
        """Read what the evaluation stored of every arm, such as 'features' or 'agreed', at the samples' places."""
        return {arm: values[: len(self.rows)] for arm, values in stored(self.folder, what).items()}

    def usage(self, arm: str) -> np.ndarray:
        """Read the summed weights of the experts of all samples of an arm, (steps, K)."""
        parts = stored(self.folder, "usage")[arm]
        return parts.reshape(-1, self.run.experiment.evaluate.steps, parts.shape[1]).sum(0)


def stored(run: RunDir, what: str) -> dict[str, np.ndarray]:
    """Read what the evaluation stored of every arm, 'images' or 'usage', part after part.

    Also 'features' and 'agreed', which the run's own evaluators measured, of held-out and training images, too.
    """
    is_drawn = what in ("images", "usage")
    patterns = [f"draw/*/{EVALUATION}"] if is_drawn else [f"{one}/own-*/{MEASUREMENTS}" for one in MEASURING]
    parts: dict[str, list[np.ndarray]] = {}
    # Names of ranges have leading zeros.
    for path in (path for pattern in patterns for path in sorted(run.root.glob(pattern))):
        with h5py.File(path) as file:
            for arm, group in file.items():
                parts.setdefault(arm, []).append(group[what][:])
    return {arm: np.concatenate(values) for arm, values in parts.items()}
