"""Stage autoencoder: trains the autoencoder of a latent space on the run's own images."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline import disk_sizes
from hpcddm.pipeline.fingerprints import image_settings
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.unit_settings import autoencoder_keys, trained_autoencoder
from hpcddm.runs.unit_training import unit_training
from hpcddm.stages.unit_kinds import CatalogUnits, TrainingUnits


class AutoencoderStage(TrainingUnits, CatalogUnits, Stage):
    """Stage with one unit, which trains the autoencoder."""

    name = "autoencoder"
    reads = ("catalog",)

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit; empty if the experiment does not need it."""
        return autoencoder_keys(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include autoencoder and training but not the experiment's seed, so that all seeds share their latents."""
        data = experiment.data
        images = image_settings(experiment) | {"order": settings_to_hash(data.order)}
        if data.augmentations:
            images["augmentations"] = [settings_to_hash(augmentation) for augmentation in data.augmentations]
        own = settings_to_hash(trained_autoencoder(experiment))
        return {"data": images, "autoencoder": own, "training": unit_training(experiment, key).fingerprinted()}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a training."""
        parameters = trained_autoencoder(experiment).parameters(experiment.data)
        return disk_sizes.training_space(parameters, unit_training(experiment, key), ranks)
