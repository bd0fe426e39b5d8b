"""Stage route: the router, which estimates from a noisy image the cluster that it came from."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline import disk
from hpcddm.pipeline.fingerprints import SAMPLES, common_settings
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.initial_weights import InitRequest, router_request
from hpcddm.runs.unit_keys import CATALOG, LISTS, ROUTER, expert_keys
from hpcddm.stages.data.captions import captions_read, uncounted_captions
from hpcddm.stages.data.latent_scale import space_keys, space_parts

LABEL_BYTES = 16
"""Class and cluster of a sample of the experts."""


class RouteStage(Stage):
    """Its one unit trains the router, or fits it to the data."""

    name = "route"
    reads = ("catalog", "autoencoder", "latent_scale", "lists", "captions", "texts", "train")
    gpus = Gpus.RANKS
    is_collective = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [ROUTER]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return catalog, lists and captions' states, and the experts where the router is trained on their samples."""
        experts = expert_keys(experiment) if experiment.router.samples else []
        return [CATALOG, LISTS, *space_keys(experiment), *captions_read(experiment), *experts]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples, not where they lie."""
        return SAMPLES | space_parts(experiment) | uncounted_captions(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the router, and the conversion where it is trained on the experts' samples."""
        settings = {
            "router": hashed(experiment.router),
            "experts.condition_dropout": experiment.experts.condition_dropout,
        }
        if experiment.router.samples:
            settings["evaluate.conversion"] = hashed(experiment.evaluate.conversion)
        return common_settings(experiment, experiment.router.model) | settings

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return one GPU for a router that is not trained."""
        return Gpus.RANKS if experiment.router.model.trained else Gpus.ONE

    def batch(self, experiment: Experiment, key: str) -> int:
        """Return the router's batch; 0 for one that is not trained."""
        return experiment.router.training.batch if experiment.router.training else 0

    def initial_weights(self, experiment: Experiment, key: str) -> InitRequest | None:
        """Return the weights of the other router for a refit of the head."""
        return router_request(experiment)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a training, and the experts' samples, which lie there twice while they are put together."""
        router = experiment.router
        parameters = router.model.parameters(experiment.data, experiment.cluster.experts)
        if router.training is None:
            return DiskSpace(4 * parameters, 0, 1)
        drawn = router.samples.images * experiment.cluster.experts if router.samples else 0
        size = drawn * (disk.values_per_image(experiment) + LABEL_BYTES)
        samples = DiskSpace(size, size, 2 + drawn // experiment.evaluate.batch if drawn else 0)
        return disk.of_training(parameters, router.training, ranks) + samples
