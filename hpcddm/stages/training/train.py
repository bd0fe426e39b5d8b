"""Stage train: the experts, each on its own cluster or list in isolation, and the monolith on all data."""

from collections.abc import Container, Sequence
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.config.training import Expert
from hpcddm.pipeline import disk
from hpcddm.pipeline.fingerprints import common_settings, expert_settings, overridden_models
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.files import list_name
from hpcddm.runs.initial_weights import InitRequest, denoiser_request
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.unit_keys import (
    CATALOG,
    LISTS,
    expert_keys,
    expert_of,
    list_key,
    train_keys,
)
from hpcddm.runs.unit_settings import expert_training, fingerprinted, overridden_images
from hpcddm.stages.data.captions import captions_read, uncounted_captions
from hpcddm.stages.data.latent_scale import space_keys, space_parts
from hpcddm.stages.data.materialise import copies_read


def missing_experts(experiment: Experiment, there: Container[str]) -> list[str]:
    """List the units of the experts that are not in `there`."""
    return [key for key in expert_keys(experiment) if key not in there]


def denoiser_disk(experiment: Experiment, expert: Expert | None, ranks: int) -> DiskSpace:
    """Estimate the training of an expert's network; expert None: of the monolith's and the student's."""
    config = experiment.expert_config(expert)
    common = experiment.experts.training.model_copy(update={"precision": config.precision})
    training = common if expert is None else expert_training(experiment, expert)
    return disk.of_training(config.model.parameters(experiment.data), training, ranks)


class TrainStage(Stage):
    """A unit trains one denoiser."""

    name = "train"
    reads = ("catalog", "autoencoder", "latent_scale", "lists", "captions", "texts", "materialise")
    gpus = Gpus.RANKS
    is_collective = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the monolith, then the experts."""
        return train_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return catalog and lists, an expert's own list and its copy where it reads that; no other training.

        Where latents, or states of captions, are columns, these too.
        """
        expert = expert_of(key)
        own = [] if expert is None else [list_key(expert), *copies_read(experiment, expert)]
        shared = [*space_keys(experiment), *captions_read(experiment)]
        return list(dict.fromkeys([CATALOG, LISTS, *own, *shared]))

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count an expert's own list, and for the monolith all training samples; where they lie changes nothing."""
        expert = expert_of(key)
        if expert is None:
            return {CATALOG: TRAIN, LISTS: ""} | space_parts(experiment) | uncounted_captions(experiment)
        uncounted = [CATALOG, LISTS, *copies_read(experiment, expert), *captions_read(experiment)]
        return dict.fromkeys(uncounted, "") | {list_key(expert): list_name(expert)} | space_parts(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the denoiser's own settings, an expert's training in its own numbers; never how many experts there are.

        For the monolith, the settings from which its number of images is computed.
        """
        expert = expert_of(key)
        settings = common_settings(experiment, experiment.expert_config(expert).model)
        settings["experts"] = expert_settings(experiment, expert)
        if expert is None:
            return settings | _bought_settings(experiment)
        own = expert_training(experiment, expert)
        return settings | {"training": fingerprinted(experiment.experts.training, own)}

    def lengths(self, experiment: Experiment, key: str) -> Sequence[str]:
        """Return what the monolith's number of images is computed from, unless its learning rate falls by it."""
        is_bought = expert_of(key) is None and not experiment.experts.training.decays_by_images
        return ("cluster.experts", "router.", "experts.overrides", "experts.own_images") if is_bought else ()

    def batch(self, experiment: Experiment, key: str) -> int:
        """Return the monolith's batch, or an expert's own."""
        expert = expert_of(key)
        return experiment.experts.training.batch if expert is None else expert_training(experiment, expert).batch

    def site(self, experiment: Experiment, key: str) -> str | None:
        """Return the expert's own site, where the experiment names sites."""
        expert = expert_of(key)
        return super().site(experiment, key) if expert is None else experiment.experts.site_of(expert)

    def initial_weights(self, experiment: Experiment, key: str) -> InitRequest | None:
        """Return the weights of `experts.init_from` or of the expert's override."""
        return denoiser_request(experiment, expert_of(key))

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a training."""
        return denoiser_disk(experiment, expert_of(key), ranks)


def _bought_settings(experiment: Experiment) -> dict[str, Any]:
    """Return what the monolith's images depend on: the router's FLOPs, and the experts' sizes."""
    common, config = experiment.experts.training, experiment.expert_config()
    router, training = experiment.router, experiment.router.training
    settings: dict[str, Any] = {"model": hashed(router.model)}
    if training:
        settings |= {"images": training.images, "batch": training.batch}
        if common.snapshots and training.snapshots:
            settings["snapshots"] = training.snapshots
    if router.samples:
        settings["samples"] = hashed(router.samples)
    if router.refit:
        settings["refit"] = True
    bought = {
        "experts.training": hashed(common) | {"precision": config.precision},
        "cluster.experts": experiment.cluster.experts,
        "router": settings,
        "experts.overrides": overridden_models(experiment),
    }
    # Without any, as before there were any.
    own = overridden_images(experiment)
    return bought | ({"experts.own_images": own} if own else {})
