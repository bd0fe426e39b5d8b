"""Stage autoencoder: trains the autoencoder of a latent space on the run's own images."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.fingerprints import image_settings
from hpcddm.pipeline.stage import Stage
from hpcddm.runs.unit_training import autoencoder_keys, resolve_training
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
        data, training = experiment.data, resolve_training(experiment, key)
        images = image_settings(experiment) | {"order": settings_to_hash(data.order)}
        if data.augmentations:
            images["augmentations"] = [settings_to_hash(augmentation) for augmentation in data.augmentations]
        own = settings_to_hash(training.network)
        return {"data": images, "autoencoder": own, "training": training.settings.fingerprinted()}
