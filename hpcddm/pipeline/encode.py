"""Stage encode: the features of one tar, by which the data are clustered."""

from typing import Any

from hpcddm.config import Experiment
from hpcddm.pipeline.disk import images_of_shard
from hpcddm.pipeline.shard import shard_keys
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.schema import hashed

FEATURES = "features.h5"


def encode_keys(experiment: Experiment) -> list[str]:
    """List the units that encode the tars, in the tars' order."""
    return [key.replace("shard/", "encode/") for key in shard_keys(experiment)]


class EncodeStage(Stage):
    """A unit encodes the images of the shard of the same name."""

    name = "encode"
    reads = ("shard",)
    gpus = Gpus.ONE
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """List one unit per tar."""
        return encode_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the shard of the same name."""
        return [key.replace("encode/", "shard/")]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the encoder."""
        return {"encode": hashed(experiment.encode)}

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return no GPU for an encoder that computes next to nothing."""
        return Gpus.ONE if experiment.encode.encoder.uses_gpu else Gpus.NONE

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate float32 features."""
        dimensions = experiment.encode.encoder.dimensions(experiment.data)
        return DiskSpace(images_of_shard(experiment, key, images) * dimensions * 4, 0, 1)
