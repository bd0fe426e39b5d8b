"""Stage encode: the features of a range of tars, by which the data are clustered."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.ranges import images_of_range, range_keys
from hpcddm.runs.unit_keys import CATALOG


class EncodeStage(Stage):
    """A unit encodes the images of one range."""

    name = "encode"
    reads = ("catalog",)
    gpus = Gpus.ONE
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges, or nothing for a clustering that needs no features."""
        return range_keys(experiment, self.name) if experiment.cluster.clustering.needs_features else []

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog, which says where the images lie."""
        return [CATALOG]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the encoder."""
        return {"encode": hashed(experiment.encode)}

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return no GPU for an encoder that computes next to nothing."""
        return Gpus.ONE if experiment.encode.encoder.uses_gpu else Gpus.NONE

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate float16 features."""
        dimensions = experiment.encode.encoder.dimensions(experiment.data)
        return DiskSpace(images_of_range(experiment, key, images) * dimensions * 2, 0, 1)
