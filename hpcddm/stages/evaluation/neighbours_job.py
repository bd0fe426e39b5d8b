"""Stage neighbours: what the balls around a range of held-out images and of samples hold."""

from itertools import pairwise

import h5py
import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.overlap import NeighbourhoodOverlap, OverlapPart, RealBalls, merge, union
from hpcddm.files import atomic, hdf5
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import NEIGHBOURS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.stages.evaluation.draw import arm_names, draw_range
from hpcddm.stages.evaluation.measure_job import read_measured
from hpcddm.stages.progress import advance

ROWS_AT_ONCE = 1000
"""Images whose balls are looked at between two heartbeats."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Find what the balls around a range hold, for every arm and for training images in the place of samples."""
    first, (start, stop) = experiment.evaluate.first_sample, draw_range(unit.key)
    edges = [*range(start - first, stop - first, ROWS_AT_ONCE), stop - first]
    rows, arms = [slice(*ends) for ends in pairwise(edges)], (*arm_names(experiment), TRAIN)
    total, real, balls = len(rows) * (len(arms) + 1), _features(unit, HELDOUT), []

    for place, own in enumerate(rows):
        advance(unit, place, total)
        balls.append(RealBalls.around(real, own))
    with atomic.replacing(unit.folder / NEIGHBOURS, durable=False) as staged, h5py.File(staged, "w") as file:
        for number, arm in enumerate(arms, start=1):
            fake, parts = _features(unit, arm), []
            for place, around in enumerate(balls):
                advance(unit, number * len(rows) + place, total)
                parts.append(around.overlap(fake))
            for name, values in vars(union(parts)).items():
                packed = np.packbits(values, axis=1) if values.dtype == bool else values
                file.create_dataset(f"{arm}/{name}", data=packed)
    return Result([NEIGHBOURS], {"images": stop - start})


def merge_ranges(experiment: Experiment, unit: Unit, arm: str) -> NeighbourhoodOverlap | None:
    """Merge what the units of all ranges found of an arm, or of training images; None if there are none."""
    parts = []
    for key in unit.inputs_of("neighbours"):
        with hdf5.open_checked(unit.input(key, NEIGHBOURS)) as file:
            values = {name: stored[()] for name, stored in file[arm].items()}
        parts.append(OverlapPart(**{name: _unpacked(own, experiment.evaluate.images) for name, own in values.items()}))
    return merge(parts) if parts else None


def _unpacked(values: np.ndarray, images: int) -> np.ndarray:
    return np.unpackbits(values, axis=1, count=images).astype(bool) if values.dtype == np.uint8 else values


def _features(unit: Unit, group: str) -> np.ndarray:
    return read_measured(unit, group).part(Need.FEATURES)
