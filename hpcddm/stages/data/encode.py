"""Stage encode: features of the images in a range of tars, for the clustering."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.stage import DiskSpace, GpuUse, Stage
from hpcddm.runs.ranges import images_of_range, range_keys
from hpcddm.runs.unit_keys import CATALOG


class EncodeStage(Stage):
    """Stage whose units encode the images of one range."""

    name = "encode"
    reads = ("catalog",)
    gpus = GpuUse.ONE
    runs_at_every_site = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges, or nothing for a clustering that needs no features."""
        return range_keys(experiment, self.name) if experiment.cluster.clustering.needs_features else []

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog, which gives the location of the images."""
        return [CATALOG]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the encoder."""
        return {"encode": settings_to_hash(experiment.encode)}

    def usable_gpus(self, experiment: Experiment) -> GpuUse:
        """Return `GpuUse.NONE` for an encoder that needs no GPU."""
        return GpuUse.ONE if experiment.encode.encoder.uses_gpu else GpuUse.NONE

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate float16 features."""
        dimensions = experiment.encode.encoder.dimensions(experiment.data)
        return DiskSpace(images_of_range(experiment, key, images) * dimensions * 2, 0, 1)
