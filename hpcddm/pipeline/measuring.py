"""Stage measuring: the extractor of the distances and the classifier of samples, trained on real images."""

from typing import Any

from hpcddm.config import ClassifierSettings, Experiment
from hpcddm.pipeline import disk
from hpcddm.pipeline.fingerprints import image_settings
from hpcddm.pipeline.keys import CLASSIFIER, EXTRACTOR, name_of
from hpcddm.pipeline.shard import shard_keys
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.schema import hashed


def network_settings(experiment: Experiment, key: str) -> ClassifierSettings:
    """Return the settings of the extractor or of the classifier, by its unit's key."""
    return {EXTRACTOR: experiment.measuring.extractor, CLASSIFIER: experiment.measuring.classifier}[key]


class MeasuringStage(Stage):
    """A unit trains one of the two networks."""

    name = "measuring"
    reads = ("shard",)
    gpus = Gpus.RANKS
    is_collective = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the two networks."""
        return [EXTRACTOR, CLASSIFIER]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return all shards."""
        return shard_keys(experiment)

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
        parameters = network.model.parameters(experiment.data, experiment.data.num_classes)
        return disk.of_training(parameters, network.training, ranks)
