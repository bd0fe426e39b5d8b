"""Stage train: the experts, each on its own cluster or list in isolation, and the monolith on all data."""

from collections.abc import Container, Sequence
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.fingerprints import common_settings, expert_settings, overridden_models
from hpcddm.pipeline.stage import Stage
from hpcddm.runs.files import list_name
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS, expert_keys, expert_of, list_key, train_keys
from hpcddm.runs.unit_training import overridden_images, resolve_training
from hpcddm.stages.data.copy_lists import copies_read
from hpcddm.stages.data.encode_captions import captions_read, uncounted_captions
from hpcddm.stages.data.latents import space_parts
from hpcddm.stages.unit_kinds import TrainingUnits, network_inputs


def missing_experts(experiment: Experiment, present: Container[str]) -> list[str]:
    """List the units of the experts that are not in `present`."""
    return [key for key in expert_keys(experiment) if key not in present]


class TrainStage(TrainingUnits, Stage):
    """Stage whose units train one denoiser each."""

    name = "train"
    reads = ("catalog", "autoencoder", "latents", "expert_lists", "encode_captions", "copy_lists")

    def units(self, experiment: Experiment) -> list[str]:
        """List the monolith, then the experts."""
        return train_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return catalog, lists, latents and captions' states, and an expert's list or copy, but no other training."""
        expert = expert_of(key)
        own = [] if expert is None else [list_key(expert), *copies_read(experiment, expert)]
        return list(dict.fromkeys([CATALOG, EXPERT_LISTS, *own, *network_inputs(experiment)]))

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count an expert's own list, and for the monolith all training samples; their locations do not count."""
        expert = expert_of(key)
        if expert is None:
            return {CATALOG: TRAIN, EXPERT_LISTS: ""} | space_parts(experiment) | uncounted_captions(experiment)
        uncounted = [CATALOG, EXPERT_LISTS, *copies_read(experiment, expert), *captions_read(experiment)]
        return dict.fromkeys(uncounted, "") | {list_key(expert): list_name(expert)} | space_parts(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the settings of the denoiser and of its training, but not the number of experts.

        The monolith includes the settings that determine its number of images instead of a training.
        """
        own = resolve_training(experiment, key)
        settings = common_settings(experiment, own.denoiser.model)
        settings["experts"] = expert_settings(experiment, own.denoiser)
        if expert_of(key) is None:
            return settings | _equal_flops_settings(experiment)
        return settings | {"training": own.settings.fingerprinted()}

    def lengths(self, experiment: Experiment, key: str) -> Sequence[str]:
        """Return the inputs of the monolith's number of images, unless its learning rate decays over it."""
        is_bought = expert_of(key) is None and not experiment.experts.training.decays_by_images
        return ("cluster.experts", "router.", "experts.overrides", "experts.own_images") if is_bought else ()

    def site(self, experiment: Experiment, key: str) -> str | None:
        """Return the expert's site, if the experiment names sites."""
        expert = expert_of(key)
        return super().site(experiment, key) if expert is None else experiment.experts.site_of(expert)


def _equal_flops_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that determine the monolith's images through the FLOPs of router and experts."""
    common, router, training = experiment.experts.training, experiment.router, experiment.router.training
    settings: dict[str, Any] = {"model": settings_to_hash(router.model)}
    if training:
        settings |= {"images": training.images, "batch": training.batch}
        if common.snapshots and training.snapshots:
            settings["snapshots"] = training.snapshots
    if router.samples:
        settings["samples"] = settings_to_hash(router.samples)
    if router.refit:
        settings["refit"] = True
    bought = {
        "experts.training": settings_to_hash(common),
        "cluster.experts": experiment.cluster.experts,
        "router": settings,
        "experts.overrides": overridden_models(experiment),
    }
    # Without any the key is absent, so that older fingerprints stay valid.
    own = overridden_images(experiment)
    return bought | ({"experts.own_images": own} if own else {})
