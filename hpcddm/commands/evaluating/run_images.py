"""Images of a run as a set: the samples that it has drawn in an arm, or the real images that it compares them with."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from hpcddm.api import Run, open_run
from hpcddm.config.sampling import SamplerSettings
from hpcddm.data import evaluation_set, run_samples
from hpcddm.data.reader import CatalogReader
from hpcddm.errors import require
from hpcddm.evaluation.image_sets import ImageFiles
from hpcddm.files import hdf5
from hpcddm.runs.files import EVALUATION
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.run_dir import RunDir
from hpcddm.stages.evaluation.draw import arm_names, draw_keys, draw_range

REAL = (HELDOUT, TRAIN)


class RunImages(ImageFiles):
    """Images of the evaluation of a run, in its order.

    Args:
        name: RUN:ARM as the user typed it; ARM may also be 'heldout' or 'train'.

    Raises:
        UserError: The run has no such arm, or has not drawn it. The message names the next step.
    """

    def __init__(self, name: str) -> None:
        self.name, (root, _, self.arm) = name, name.rpartition(":")
        self.run: Run = open_run(root)
        self.root, experiment = RunDir(Path(root)), self.run.experiment
        valid = [*arm_names(experiment), *REAL]
        require(self.arm in valid, f"{name}: the run has no arm '{self.arm}'; valid ones: {', '.join(valid)}")
        self._split = self.arm if self.arm in REAL else HELDOUT
        names, self._first = self.run.class_names, experiment.evaluate.first_sample
        catalog = run_samples.open_catalog(self.root, self._split)
        if self.arm in REAL:
            numbers = evaluation_set.choose_evaluation_samples(catalog, experiment, names, self._split)
        else:
            numbers = evaluation_set.choose_condition_samples(catalog, experiment, names)
        self._reader, self._numbers = CatalogReader(catalog), numbers[self._first :]
        labels = run_samples.read_labels(experiment, self._reader, self._numbers)
        self.labels, self.class_names = labels if len(labels) else None, names
        self._ranges = {key: draw_range(key) for key in draw_keys(experiment)}
        self.boundaries = [stop - self._first for _, stop in self._ranges.values()]
        self._locate = self.run.output_locator()

    @property
    def count(self) -> int:
        """Number of the images of the evaluation."""
        return len(self._numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the run's images."""
        data = self.run.experiment.data
        return data.image_size, data.image_size, data.channels

    @property
    def origin(self) -> dict[str, Any]:
        """Return the seed, the number of the first image, and the settings of the sampler."""
        experiment = self.run.experiment
        sampler = experiment.evaluate.model_dump(mode="json", include={*SamplerSettings.model_fields})
        origin = {"seed": experiment.seed, "first_sample": self._first}
        return origin if self.arm in REAL else origin | {"sampler": sampler}

    def captions(self, rows: Int64[np.ndarray, " n"]) -> list[str]:
        """Return the captions on which samples were drawn, or those of real images."""
        return self._reader.captions(self._numbers[rows]) if self.run.experiment.data.condition.reads_captions else []

    def read(self, rows: Int64[np.ndarray, " n"]) -> np.ndarray:
        """Read images by their places in the evaluation: (N, H, W, C), C as in the run."""
        if self.arm in REAL:
            return self._reader.images(self._numbers[rows])
        found, places = [], rows + self._first
        for key, (start, stop) in self._ranges.items():
            inside = places[(places >= start) & (places < stop)] - start
            if len(inside):
                with hdf5.open_checked(self._locate(key, EVALUATION)) as file:
                    found.append(file[self.arm]["images"][inside])
        return np.concatenate(found)
