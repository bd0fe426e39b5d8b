"""Settings under the fingerprints of several stages."""

from typing import Any

from hpcddm.config.conditions import Form
from hpcddm.config.experiment import Experiment
from hpcddm.config.models import NetworkSettings
from hpcddm.config.schema import hashed
from hpcddm.config.training import Expert
from hpcddm.runs.unit_keys import CATALOG, LISTS

ALL = "all"
"""Part of catalog and lists: all samples, and the clusters of all, wherever they lie."""
SAMPLES = {CATALOG: ALL, LISTS: ALL}
"""Parts that count for units that read samples of any kind: in which tars they lie changes nothing."""


def image_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of the images, of which the measuring networks are a function.

    The transform of adopted tars is among them; in those that are written, the pictures have passed through it.
    """
    data = experiment.data
    keys = {"image_size", "channels", "num_classes", *(("transform",) if data.source.adopts_tars else ())}
    return {key: value for key, value in hashed(data).items() if key in keys}


def common_settings(experiment: Experiment, model: NetworkSettings | None = None) -> dict[str, Any]:
    """Return the settings of all but the measuring networks.

    model: the network that is trained; None where several networks are used. The samples' order and augmentations
    count only where one is trained, the condition only where the network sees it.
    """
    data = experiment.data
    images = image_settings(experiment) | {"space": _space_settings(experiment)}
    if model is not None:
        images["order"] = hashed(data.order)
        # Without any, as before there were any.
        if data.augmentations:
            images["augmentations"] = [hashed(own) for own in data.augmentations]
    if model is None or model.form(data) is not Form.NONE:
        images["condition"] = hashed(data.condition)
    return {"data": images, "seed": experiment.seed}


def _space_settings(experiment: Experiment) -> dict[str, Any]:
    """Return what x is; of latents its shape, too, which only the autoencoder's weights could tell."""
    data = experiment.data
    shape = {"shape": list(data.x_shape)} if data.space.reads_latents else {}
    return data.space.coordinates | shape


def expert_settings(experiment: Experiment, expert: Expert | None) -> dict[str, Any]:
    """Return the settings of one denoiser, without the overrides of other experts and without its training."""
    config = experiment.expert_config(expert)
    return {
        "model": hashed(config.model),
        "objective": hashed(config.objective),
        "condition_dropout": experiment.experts.condition_dropout,
        "init_from": hashed(config.init_from) if config.init_from else None,
    }


def overridden_models(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the models of experts that have another one, with their clusters."""
    changed = [(override.clusters, override.model) for override in experiment.experts.overrides]
    return [{"clusters": clusters, "model": hashed(model)} for clusters, model in changed if model is not None]


def feature_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of which the features of an image are a function."""
    data = experiment.data
    images = {"image_size": data.image_size, "channels": data.channels, "transform": hashed(data.transform)}
    return {"encode": hashed(experiment.encode)} | ({"data": images} if experiment.encode.encoder.reads_images else {})
