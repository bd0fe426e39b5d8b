"""Settings of single units: evaluators, and the space of latents."""

from typing import Any

from hpcddm.config.autoencoders import TrainedAutoencoderSettings
from hpcddm.config.experiment import ClassifierSettings, Experiment
from hpcddm.config.spaces import LatentSpaceSettings
from hpcddm.runs.unit_keys import AUTOENCODER, CLASSIFIER, EXTRACTOR

NUM_ROTATIONS = 4
"""Rotations by multiples of 90 degrees that an extractor classifies if the images have no classes (arXiv 1803.07728).

Clusters would not do as labels: runs with different clusterings or another K could not be compared.
"""


def has_mirrored_latents(experiment: Experiment) -> bool:
    """Return True if latents of mirrored images are stored, which a training reads in half of its visits."""
    return bool(experiment.data.augmentations)


def latent_space(experiment: Experiment) -> LatentSpaceSettings | None:
    """Return the settings of the latent space; None if the networks see pixels."""
    space = experiment.data.space
    return space if isinstance(space, LatentSpaceSettings) else None


def require_latent_space(experiment: Experiment) -> LatentSpaceSettings:
    """Return the settings of the latent space.

    Raises:
        ValueError: If the run has no latents.
    """
    space = latent_space(experiment)
    if space is None:
        raise ValueError("data.space: this run has no latents")
    return space


def autoencoder_keys(experiment: Experiment) -> list[str]:
    """List the unit that trains the autoencoder; empty if the run trains none."""
    space = latent_space(experiment)
    return [AUTOENCODER] if space is not None and space.autoencoder.is_trained else []


def trained_autoencoder(experiment: Experiment) -> TrainedAutoencoderSettings:
    """Return the settings of the autoencoder that the run trains.

    Raises:
        ValueError: If the run does not train an autoencoder.
    """
    autoencoder = require_latent_space(experiment).autoencoder
    if not isinstance(autoencoder, TrainedAutoencoderSettings):
        raise ValueError("data.space: this run trains no autoencoder")
    return autoencoder


def evaluator_settings(experiment: Experiment, key: str) -> ClassifierSettings:
    """Return the settings of the extractor or the classifier.

    Args:
        experiment: The experiment.
        key: Unit of the network, `EXTRACTOR` or `CLASSIFIER`.

    Raises:
        ValueError: If the experiment does not have this network.
    """
    settings = {EXTRACTOR: experiment.evaluators.extractor, CLASSIFIER: experiment.evaluators.classifier}.get(key)
    if settings is None:
        raise ValueError(f"{key}: trains nothing; a classifier needs images with classes")
    return settings


def num_outputs(experiment: Experiment) -> int:
    """Return the number of outputs of an evaluator: the classes, or `NUM_ROTATIONS` without classes."""
    return experiment.data.num_classes or NUM_ROTATIONS


def overridden_images(experiment: Experiment) -> list[dict[str, Any]]:
    """Return clusters, images and batch of each override that sets images or batch."""
    changed = [override for override in experiment.experts.overrides if override.images or override.batch]
    return [override.model_dump(include={"clusters", "images", "batch"}) for override in changed]
