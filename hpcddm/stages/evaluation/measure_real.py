"""Stage measure_real: what every evaluator measures on the real images that samples are compared with, once."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.image_encoders import ImageEncoderSettings, figure_label
from hpcddm.config.schema import settings_to_hash
from hpcddm.errors import require
from hpcddm.pipeline.fingerprints import image_settings
from hpcddm.pipeline.stage import DiskSpace, GpuUse, Stage
from hpcddm.runs.unit_keys import CATALOG, unit_name
from hpcddm.runs.unit_training import num_outputs
from hpcddm.stages.evaluation.draw import draw_keys
from hpcddm.stages.training.evaluators import evaluator_keys
from hpcddm.stages.unit_kinds import CatalogUnits

OWN = "own"
"""Label of the extractor and the classifier that the run trains; other evaluators have that of their settings."""
HEAD_VALUES = 1008
"""Outputs of a head, at most: those of the graph of 2015."""


def encoders_by_label(experiment: Experiment) -> dict[str, ImageEncoderSettings]:
    """Return the settings of `evaluate.extractors` by the label that their figures carry.

    Raises `UserError` for two of one label, and where weights are missing that say the label.
    """
    encoders = {figure_label(encoder): encoder for encoder in experiment.evaluate.extractors}
    text = "evaluate.extractors: figures of two of them would have one name; remove one"
    require(len(encoders) == len(experiment.evaluate.extractors), text)
    return encoders


def evaluator_labels(experiment: Experiment) -> list[str]:
    """List the evaluators that measure images one by one, the run's own first."""
    return [*([OWN] if evaluator_keys(experiment) else []), *encoders_by_label(experiment)]


def measuring_keys(experiment: Experiment, stage: str, label: str | None = None) -> list[str]:
    """List the units of a stage in which evaluators measure ranges of images, `stage/label-start-stop`.

    Args:
        experiment: The experiment.
        stage: `measure_real` or `measure`.
        label: One evaluator; None for all.
    """
    labels = evaluator_labels(experiment) if label is None else [label]
    return [f"{stage}/{one}-{unit_name(key)}" for one in labels for key in draw_keys(experiment)]


def evaluator_of(key: str) -> str:
    """Return the label of the evaluator of a unit.

    Examples:
        >>> evaluator_of("measure/dinov2-l14-224-bicubic-aa-0000000-0001000"), range_name("measure_real/own-000-100")
        ('dinov2-l14-224-bicubic-aa', '000-100')
    """
    return unit_name(key).rsplit("-", 2)[0]


def range_name(key: str) -> str:
    """Return the range of images of a unit, as the name of the unit of the stage draw with the same range."""
    return "-".join(unit_name(key).rsplit("-", 2)[1:])


def networks_of(experiment: Experiment, label: str) -> list[str]:
    """List the units that train the networks of an evaluator; empty for public weights."""
    return evaluator_keys(experiment) if label == OWN else []


def evaluator_fingerprint(experiment: Experiment, label: str) -> dict[str, Any]:
    """Return the settings of an evaluator; those of networks that the run trains are in their units."""
    if label == OWN:
        return {}
    encoder = encoders_by_label(experiment)[label]
    reads_captions = encoder.has_text and experiment.data.condition.reads_captions
    return {"extractor": settings_to_hash(encoder)} | ({"reads_captions": True} if reads_captions else {})


def num_features(experiment: Experiment, label: str) -> int:
    """Return the number of features of an evaluator; 0 for a run's own that has no extractor."""
    if label == OWN:
        extractor = experiment.evaluators.extractor
        return 0 if extractor is None else extractor.model.features
    return encoders_by_label(experiment)[label].dimensions(experiment.data)


def values_per_measured(experiment: Experiment, label: str) -> int:
    """Return the number of values that an evaluator gives for an image."""
    features = num_features(experiment, label)
    if label == OWN:
        return features + num_outputs(experiment) if features else 1
    return features + HEAD_VALUES * encoders_by_label(experiment)[label].has_head


class MeasuringUnits(CatalogUnits):
    """Units that measure a range of images with one evaluator."""

    gpus = GpuUse.ONE

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the evaluator and the images."""
        return {"data": image_settings(experiment)} | evaluator_fingerprint(experiment, evaluator_of(key))


class MeasureRealStage(MeasuringUnits, Stage):
    """Stage whose units measure a range of held-out images, and as many training images, with one evaluator.

    Their fingerprint does not count how samples are drawn, so the settings of a sweep share them.
    """

    name = "measure_real"
    reads = ("catalog", "evaluators")

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges of every evaluator."""
        return measuring_keys(experiment, self.name)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog, and the networks that the run trains."""
        return [CATALOG, *networks_of(experiment, evaluator_of(key))]

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate float32 values of held-out and training images."""
        start, stop = map(int, range_name(key).split("-"))
        return DiskSpace(2 * 4 * (stop - start) * values_per_measured(experiment, evaluator_of(key)), 0, 1)
