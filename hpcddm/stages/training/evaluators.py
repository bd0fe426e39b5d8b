"""Stage evaluators: the extractor of the distances and the classifier of samples, trained on real images."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.fingerprints import image_settings
from hpcddm.pipeline.stage import Stage
from hpcddm.runs.unit_keys import CLASSIFIER, EXTRACTOR, unit_name
from hpcddm.runs.unit_training import evaluator_settings
from hpcddm.stages.unit_kinds import CatalogUnits, TrainingUnits


def evaluator_keys(experiment: Experiment) -> list[str]:
    """List the units that train the extractor and the classifier, those of the two that the experiment has."""
    settings = experiment.evaluators
    return [key for key, own in ((EXTRACTOR, settings.extractor), (CLASSIFIER, settings.classifier)) if own is not None]


class EvaluatorsStage(TrainingUnits, CatalogUnits, Stage):
    """Stage whose units train one of the evaluators each."""

    name = "evaluators"
    reads = ("catalog",)

    def units(self, experiment: Experiment) -> list[str]:
        """List the networks."""
        return evaluator_keys(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the network, not the experiment's seed: distances by different rulers could not be compared."""
        settings = settings_to_hash(evaluator_settings(experiment, key))
        data = image_settings(experiment) | {"order": settings_to_hash(experiment.data.order)}
        return {"data": data, f"evaluators.{unit_name(key)}": settings}
