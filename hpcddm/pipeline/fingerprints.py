"""Settings that count in the fingerprints of several stages."""

from typing import Any

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.experiment import Experiment, ExpertConfig
from hpcddm.config.models import NetworkSettings
from hpcddm.config.schema import settings_to_hash
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS

ALL = "all"
"""Part of catalog and lists: all samples and their clusters, regardless of the tars that store them."""
SAMPLES = {CATALOG: ALL, EXPERT_LISTS: ALL}
"""Parts that count for units that read samples, regardless of the tars that store them."""


def image_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of the images that the evaluators see.

    They include the transform for existing tars that are used in place; images in the run's tars are already
    transformed.
    """
    data = experiment.data
    keys = {"image_size", "channels", "num_classes", *(("transform",) if data.source.reads_in_place else ())}
    return {key: value for key, value in settings_to_hash(data).items() if key in keys}


def class_name_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the names that the experiment gives the classes, for units whose outputs show them; empty without."""
    names = experiment.data.class_names
    return {"data.class_names": names} if names else {}


def common_settings(experiment: Experiment, model: NetworkSettings | None = None) -> dict[str, Any]:
    """Return the common settings of all stages that train or use networks, except the evaluators.

    Args:
        experiment: The experiment.
        model: The network that the stage trains; its training counts the order of the samples and their augmentations,
            and the condition only if the network sees it. None for a stage that uses several networks.
    """
    data = experiment.data
    images = image_settings(experiment) | {"space": _space_settings(experiment)}
    if model is not None:
        images["order"] = settings_to_hash(data.order)
        # Without augmentations the key is absent, so that older fingerprints stay valid.
        if data.augmentations:
            images["augmentations"] = [settings_to_hash(augmentation) for augmentation in data.augmentations]
    if model is None or model.condition_form(data) is not ConditionForm.NONE:
        images["condition"] = settings_to_hash(data.condition)
    return {"data": images, "seed": experiment.seed}


def _space_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the definition of x; for latents also the shape of x, which depends on the autoencoder's weights."""
    data = experiment.data
    return data.space.defining_settings | ({"shape": list(data.x_shape)} if data.space.reads_latents else {})


def expert_settings(experiment: Experiment, config: ExpertConfig) -> dict[str, Any]:
    """Return the settings of one denoiser, without its training and without the overrides of other experts.

    Args:
        experiment: The experiment.
        config: Settings of the denoiser.
    """
    return {
        "model": settings_to_hash(config.model),
        "objective": settings_to_hash(config.objective),
        "condition_dropout": experiment.experts.condition_dropout,
        "init_from": settings_to_hash(config.init_from) if config.init_from else None,
    }


def overridden_models(experiment: Experiment) -> list[dict[str, Any]]:
    """Return clusters and model of each override that sets a model."""
    changed = [(override.clusters, override.model) for override in experiment.experts.overrides]
    return [
        {"clusters": clusters, "model": settings_to_hash(model)} for clusters, model in changed if model is not None
    ]


def feature_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that determine the features of an image."""
    data = experiment.data
    images = {"image_size": data.image_size, "channels": data.channels, "transform": settings_to_hash(data.transform)}
    encode = {"encode": settings_to_hash(experiment.encode)}
    return encode | {"data": images} if experiment.encode.encoder.reads_images else encode
