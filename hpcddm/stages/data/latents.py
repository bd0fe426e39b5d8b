"""Stage latents: the latents of a range of tars, as moments, from which trainings draw."""

import math
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.ranges import images_of_range, range_keys
from hpcddm.runs.unit_keys import CATALOG
from hpcddm.runs.unit_settings import autoencoder_keys, has_mirrored, latent_space, required_space

MADE_OF = "made of"
"""Part of a unit's outputs: what they are a function of, for their last bits may be others on another machine."""
VALUE_BYTES = 2


class LatentsStage(Stage):
    """A unit encodes the images of one range; there is none where the space is not one of latents."""

    name = "latents"
    reads = ("catalog", "autoencoder")
    gpus = Gpus.ONE
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges."""
        return range_keys(experiment, self.name) if latent_space(experiment) else []

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog, and the autoencoder where the run trains it."""
        return [CATALOG, *autoencoder_keys(experiment)]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the autoencoder, under its key in the experiment: by this a submission looks for its weights."""
        space = {"autoencoder": hashed(required_space(experiment).autoencoder)}
        return {"data": {"space": space}, "mirrored": has_mirrored(experiment)}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the moments in float16."""
        columns = 2 if has_mirrored(experiment) else 1
        per_image = (
            columns * required_space(experiment).autoencoder.moments * math.prod(experiment.data.x_shape) * VALUE_BYTES
        )
        return DiskSpace(images_of_range(experiment, key, images) * per_image, 0, 1)
