"""Stage compare: the metrics of every arm by one evaluator, with what intervals and paired differences need."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.fingerprints import image_settings
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.unit_keys import CATALOG, unit_name
from hpcddm.stages.evaluation.draw import arm_names, draw_keys
from hpcddm.stages.evaluation.measure_real import evaluator_labels, measuring_keys, networks_of
from hpcddm.stages.evaluation.neighbours import neighbours_keys
from hpcddm.stages.unit_kinds import CatalogUnits

FIGURE_BYTES = 12_000
"""Bytes of the figures of an arm."""


def perceptual_label(experiment: Experiment) -> str | None:
    """Return the label of `evaluate.perceptual`; None without."""
    perceptual = experiment.evaluate.perceptual
    return None if perceptual is None else perceptual.name.replace("_", "-")


def compare_keys(experiment: Experiment) -> list[str]:
    """List the units, one for each evaluator."""
    perceptual = perceptual_label(experiment)
    return [f"compare/{label}" for label in (*evaluator_labels(experiment), *([perceptual] if perceptual else []))]


class CompareStage(CatalogUnits, Stage):
    """Stage whose units compare the samples of all arms with real images, by what one evaluator measured."""

    name = "compare"
    reads = ("catalog", "evaluators", "draw", "measure_real", "measure", "neighbours")

    def units(self, experiment: Experiment) -> list[str]:
        """List the evaluators."""
        return compare_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog for the classes, and the measurements; the perceptual distance sees the samples.

        The networks that the run trains are listed, so that measurements by others are noticed.
        """
        label = unit_name(key)
        if label == perceptual_label(experiment):
            return [CATALOG, *draw_keys(experiment)]
        measured = [*measuring_keys(experiment, "measure_real", label), *measuring_keys(experiment, "measure", label)]
        return [CATALOG, *networks_of(experiment, label), *measured, *neighbours_keys(experiment, label)]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the images and the perceptual distance; arms and other measurements are inputs."""
        settings = {"data": image_settings(experiment)}
        perceptual = experiment.evaluate.perceptual
        if perceptual is None or unit_name(key) != perceptual_label(experiment):
            return settings
        return settings | {"evaluate.perceptual": settings_to_hash(perceptual)}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the file of figures."""
        return DiskSpace(FIGURE_BYTES * (len(arm_names(experiment)) + 1), 0, 1)
