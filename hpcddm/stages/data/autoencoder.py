"""Stage autoencoder: the autoencoder of a space of latents, where the run trains it on its own images."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline import disk
from hpcddm.pipeline.fingerprints import ALL, image_settings
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.unit_keys import CATALOG
from hpcddm.runs.unit_settings import autoencoder_keys, trained_autoencoder


class AutoencoderStage(Stage):
    """Its one unit trains the autoencoder."""

    name = "autoencoder"
    reads = ("catalog",)
    gpus = Gpus.RANKS
    is_collective = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit, or nothing."""
        return autoencoder_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog."""
        return [CATALOG]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples, not where they lie."""
        return {CATALOG: ALL}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover autoencoder and training, not the experiment's seed: all seeds of an experiment share their latents."""
        own, training = trained_autoencoder(experiment)
        data = experiment.data
        images = image_settings(experiment) | {"order": hashed(data.order)}
        if data.augmentations:
            images["augmentations"] = [hashed(augmentation) for augmentation in data.augmentations]
        return {"data": images, "autoencoder": hashed(own), "training": hashed(training)}

    def batch(self, experiment: Experiment, key: str) -> int:
        """Return the batch of its training."""
        return trained_autoencoder(experiment)[1].batch

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a training."""
        own, training = trained_autoencoder(experiment)
        return disk.of_training(own.parameters(experiment.data), training, ranks)
