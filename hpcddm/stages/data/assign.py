"""Stage assign: the cluster of every sample of a range, by the rule of the partition."""

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.disk_sizes import CLUSTER_BYTES
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import images_of_range, range_keys
from hpcddm.runs.unit_keys import CATALOG, CLUSTER, unit_name
from hpcddm.stages.unit_kinds import UnitsOfInputs


class AssignStage(UnitsOfInputs, Stage):
    """Stage whose units assign the samples of one range to clusters."""

    name = "assign"
    reads = ("catalog", "encode", "cluster")
    runs_at_every_site = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges."""
        return range_keys(experiment, self.name)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the partition and, where it needs them, the features of the same range."""
        encoded = [f"encode/{unit_name(key)}"] if experiment.cluster.clustering.needs_features else []
        return [CATALOG, CLUSTER, *encoded]

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a number of the cluster for each sample."""
        return DiskSpace(images_of_range(experiment, key, images) * CLUSTER_BYTES, 0, 1)
