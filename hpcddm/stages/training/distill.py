"""Stage distill: one dense student that learns the experts' velocities (arXiv 2501.05450, sec. 3.5)."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline.fingerprints import SAMPLES, common_settings, expert_settings, overridden_models
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.initial_weights import InitRequest, denoiser_request
from hpcddm.runs.unit_keys import CATALOG, LISTS, ROUTER, expert_keys, student_keys
from hpcddm.runs.unit_settings import fingerprinted, student_training
from hpcddm.stages.data.captions import captions_read, uncounted_captions
from hpcddm.stages.data.latent_scale import space_keys, space_parts
from hpcddm.stages.training.train import denoiser_disk


class DistillStage(Stage):
    """Its one unit trains the student; there is none where the experiment has no `distill`."""

    name = "distill"
    reads = ("catalog", "autoencoder", "latent_scale", "lists", "captions", "texts", "train", "route")
    gpus = Gpus.RANKS
    is_collective = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the student."""
        return student_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return data, all experts, and the router where it chooses the teacher."""
        router = [ROUTER] if experiment.student.teacher == "router" else []
        shared = [*space_keys(experiment), *captions_read(experiment)]
        return [CATALOG, LISTS, *shared, *expert_keys(experiment), *router]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples, not where they lie."""
        return SAMPLES | space_parts(experiment) | uncounted_captions(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the student's training, and how its teachers' weights are read."""
        overrides = experiment.experts.overrides
        objectives = [hashed(override.objective) for override in overrides if override.objective is not None]
        settings = {
            "distill": hashed(experiment.student),
            "experts": expert_settings(experiment, None),
            "training": fingerprinted(experiment.experts.training, student_training(experiment)),
            "experts.overrides": [*overridden_models(experiment), *objectives],
            "evaluate.conversion": hashed(experiment.evaluate.conversion),
        }
        if experiment.student.teacher == "router":
            settings["router.model"] = hashed(experiment.router.model)
        return common_settings(experiment, experiment.expert_config().model) | settings

    def batch(self, experiment: Experiment, key: str) -> int:
        """Return the student's share of the common batch."""
        return student_training(experiment).batch

    def initial_weights(self, experiment: Experiment, key: str) -> InitRequest | None:
        """Return the weights of `experts.init_from`."""
        return denoiser_request(experiment, None)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a training."""
        return denoiser_disk(experiment, None, ranks)
