"""Stage neighbours: neighbourhoods of more images than one unit compares, in ranges.

The number of distances grows with the square of the images. Up to 10,000 the stage compare finds them itself.
"""

from hpcddm.config.experiment import Experiment
from hpcddm.evaluation.metrics.need import NEIGHBOUR_IMAGES
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.stages.evaluation.draw import arm_names
from hpcddm.stages.evaluation.measure_real import evaluator_labels, evaluator_of, measuring_keys, num_features
from hpcddm.stages.unit_kinds import UnitsOfInputs

BITS_PER_IMAGE = 3 * 11
"""Bits that a range stores of every image of an arm."""


def neighbours_keys(experiment: Experiment, label: str) -> list[str]:
    """List the ranges in the features of one evaluator; empty for 10,000 images or fewer."""
    is_large = experiment.evaluate.images > NEIGHBOUR_IMAGES
    return measuring_keys(experiment, "neighbours", label) if is_large and num_features(experiment, label) else []


class NeighboursStage(UnitsOfInputs, Stage):
    """Stage whose units find what the balls around a range of images hold, by what one evaluator measured of all."""

    name = "neighbours"
    reads = ("measure_real", "measure")

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges of every evaluator."""
        return [key for label in evaluator_labels(experiment) for key in neighbours_keys(experiment, label)]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the measurements of all ranges."""
        label = evaluator_of(key)
        return [*measuring_keys(experiment, "measure_real", label), *measuring_keys(experiment, "measure", label)]

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate which images the balls hold."""
        bits = BITS_PER_IMAGE * experiment.evaluate.images
        return DiskSpace((len(arm_names(experiment)) + 1) * bits // 8, 0, 1)
