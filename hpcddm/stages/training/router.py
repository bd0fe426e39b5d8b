"""Stage router: the router, which estimates from a noisy image the cluster that it came from."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline import disk_sizes
from hpcddm.pipeline.fingerprints import common_settings
from hpcddm.pipeline.stage import DiskSpace, GpuUse, Stage
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS, ROUTER, expert_keys
from hpcddm.stages.unit_kinds import NetworkUnits, TrainingUnits, network_inputs

LABEL_BYTES = 16
"""Class and cluster of a sample of the experts."""


class RouterStage(TrainingUnits, NetworkUnits, Stage):
    """Stage with one unit, which trains the router or fits it to the data."""

    name = "router"
    reads = ("catalog", "autoencoder", "latents", "expert_lists", "encode_captions", "train", "probe")

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [ROUTER]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return catalog, lists and captions' states, and the experts where the router is trained on their samples."""
        experts = expert_keys(experiment) if experiment.router.samples else []
        return [CATALOG, EXPERT_LISTS, *network_inputs(experiment), *experts]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the router, and the conversion where it is trained on the experts' samples."""
        settings = {
            "router": settings_to_hash(experiment.router),
            "experts.condition_dropout": experiment.experts.condition_dropout,
        }
        if experiment.router.samples:
            settings["evaluate.conversion"] = settings_to_hash(experiment.evaluate.conversion)
        return common_settings(experiment, experiment.router.model) | settings

    def usable_gpus(self, experiment: Experiment) -> GpuUse:
        """Return one GPU for a router that is not trained."""
        return GpuUse.RANKS if experiment.router.model.trained else GpuUse.ONE

    def batch_size(self, experiment: Experiment, key: str) -> int:
        """Return the router's batch; 0 for one that is not trained."""
        return super().batch_size(experiment, key) if experiment.router.training else 0

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a training, and the experts' samples, which exist twice while they are merged."""
        router = experiment.router
        if router.training is None:
            return DiskSpace(4 * router.model.parameters(experiment.data, experiment.cluster.experts), 0, 1)
        drawn = router.samples.images * experiment.cluster.experts if router.samples else 0
        size = drawn * (disk_sizes.values_per_image(experiment) + LABEL_BYTES)
        samples = DiskSpace(size, size, 2 + drawn // experiment.evaluate.batch if drawn else 0)
        return super().disk(experiment, key, images, ranks) + samples
