"""Kinds of units that several stages share: trainings, units that read what networks take, and units that draw."""

from typing import Any, ClassVar

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline import disk_sizes
from hpcddm.pipeline.fingerprints import ALL, SAMPLES
from hpcddm.pipeline.stage import DiskSpace, GpuUse, UnitKind
from hpcddm.runs.unit_keys import CATALOG, expert_keys
from hpcddm.runs.unit_training import resolve_training
from hpcddm.stages.data.encode_captions import captions_read, uncounted_captions
from hpcddm.stages.data.latents import space_keys, space_parts


def network_inputs(experiment: Experiment) -> list[str]:
    """List the units that make the space of x and the states of captions."""
    return [*space_keys(experiment), *captions_read(experiment)]


class UnitsOfInputs(UnitKind):
    """Units whose results follow from their inputs alone."""

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include nothing: the required units determine the result."""
        return {}


class CatalogUnits(UnitKind):
    """Units that read samples of all splits, with no regard to clusters."""

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog."""
        return [CATALOG]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Include the samples, not their locations."""
        return {CATALOG: ALL}


class TrainingUnits(UnitKind):
    """Units that train a network on all their ranks."""

    gpus = GpuUse.RANKS
    is_collective: ClassVar[bool] = True

    def batch_size(self, experiment: Experiment, key: str) -> int:
        """Return the batch of the unit's training."""
        return resolve_training(experiment, key).settings.batch

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a training."""
        return disk_sizes.training_space(resolve_training(experiment, key), ranks)


class NetworkUnits(UnitKind):
    """Units that read samples, clusters, and what `network_inputs` lists."""

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Include samples, clusters and space, not their locations."""
        return SAMPLES | space_parts(experiment) | uncounted_captions(experiment)


class SamplingUnits(NetworkUnits):
    """Units that draw samples by the experts that exist."""

    gpus = GpuUse.NODE

    def optional(self, experiment: Experiment) -> list[str]:
        """Return the experts."""
        return expert_keys(experiment)

    def usable_gpus(self, experiment: Experiment) -> GpuUse:
        """Return one GPU, unless the placement distributes experts over GPUs."""
        return GpuUse.NODE if experiment.evaluate.placement.uses_all_gpus else GpuUse.ONE
