"""Stage distill: one dense student that learns the experts' velocities (arXiv 2501.05450, sec. 3.5)."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.fingerprints import common_settings, expert_settings, overridden_models
from hpcddm.pipeline.stage import Stage
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS, ROUTER, expert_keys, student_keys
from hpcddm.runs.unit_training import resolve_training
from hpcddm.stages.unit_kinds import NetworkUnits, TrainingUnits, network_inputs


class DistillStage(TrainingUnits, NetworkUnits, Stage):
    """Stage with one unit, which trains the student; it has no units if the experiment has no `distill`."""

    name = "distill"
    reads = ("catalog", "autoencoder", "latents", "expert_lists", "encode_captions", "train", "probe", "router")

    def units(self, experiment: Experiment) -> list[str]:
        """List the student."""
        return student_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return data, all experts, and the router where it chooses the teacher."""
        router = [ROUTER] if experiment.student.teacher == "router" else []
        return [CATALOG, EXPERT_LISTS, *network_inputs(experiment), *expert_keys(experiment), *router]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the student's training, and how its teachers' weights are read."""
        own, overrides = resolve_training(experiment, key), experiment.experts.overrides
        objectives = [settings_to_hash(override.objective) for override in overrides if override.objective is not None]
        settings = {
            "distill": settings_to_hash(experiment.student),
            "experts": expert_settings(experiment, own.denoiser),
            "training": own.settings.fingerprinted(),
            "experts.overrides": [*overridden_models(experiment), *objectives],
            "evaluate.conversion": settings_to_hash(experiment.evaluate.conversion),
        }
        if experiment.student.teacher == "router":
            settings["router.model"] = settings_to_hash(experiment.router.model)
        return common_settings(experiment, own.denoiser.model) | settings
