"""Stage measuring: the extractor of the distances and the classifier of samples, trained on real images."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline import disk
from hpcddm.pipeline.fingerprints import ALL, image_settings
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.unit_keys import CATALOG, CLASSIFIER, EXTRACTOR, name_of
from hpcddm.runs.unit_settings import network_settings, outputs


def measuring_keys(experiment: Experiment) -> list[str]:
    """List the units that train the extractor and, where the images have classes, the classifier."""
    return [EXTRACTOR, CLASSIFIER] if experiment.measuring.classifier else [EXTRACTOR]


class MeasuringStage(Stage):
    """A unit trains one of the networks."""

    name = "measuring"
    reads = ("catalog",)
    gpus = Gpus.RANKS
    is_collective = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the networks."""
        return measuring_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog."""
        return [CATALOG]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples, not where they lie."""
        return {CATALOG: ALL}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the network, not the experiment's seed: distances by different rulers could not be compared."""
        settings = hashed(network_settings(experiment, key))
        data = image_settings(experiment) | {"order": hashed(experiment.data.order)}
        return {"data": data, f"measuring.{name_of(key)}": settings}

    def batch(self, experiment: Experiment, key: str) -> int:
        """Return the network's own batch."""
        return network_settings(experiment, key).training.batch

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a training."""
        network = network_settings(experiment, key)
        parameters = network.model.parameters(experiment.data, outputs(experiment))
        return disk.of_training(parameters, network.training, ranks)
