"""Stage latents: moments of the latents of every range of tars, and shift and scale of the latents."""

import math
from typing import Any, ClassVar

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.config.spaces import SPACE_DIGEST
from hpcddm.pipeline.stage import DiskSpace, GpuUse, Stage, UnitKind
from hpcddm.runs.ranges import images_of_range, range_keys
from hpcddm.runs.unit_keys import CATALOG, LATENT_SCALE
from hpcddm.runs.unit_training import autoencoder_keys, has_mirrored_latents, latent_space, require_latent_space

MADE_OF = "made of"
"""Part of a unit's outputs: the inputs that determine them, because their last bits may differ between machines."""
VALUE_BYTES = 2


def space_keys(experiment: Experiment) -> list[str]:
    """List the units that every stage that reads x needs; empty if x is not a latent."""
    return [LATENT_SCALE, *autoencoder_keys(experiment)] if latent_space(experiment) else []


def space_parts(experiment: Experiment) -> dict[str, str]:
    """Return the parts of `space_keys` that count in fingerprints: the definition of x, not the autoencoder itself."""
    if latent_space(experiment) is None:
        return {}
    return {LATENT_SCALE: SPACE_DIGEST} | dict.fromkeys(autoencoder_keys(experiment), "")


class LatentScaleUnit(UnitKind):
    """Unit that merges the statistics of all ranges if shift or scale are measured."""

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the latents of all ranges, and the autoencoder if the run trains it."""
        return [*range_keys(experiment, "latents"), *autoencoder_keys(experiment)]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Include the inputs of the latents: a site whose latents differ in last bits may use another site's scale."""
        return dict.fromkeys(range_keys(experiment, "latents"), MADE_OF)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include shift and scale; the latents determine the rest."""
        space = require_latent_space(experiment)
        return {"shift": space.shift, "scale": space.scale}

    def site(self, experiment: Experiment, key: str) -> str | None:
        """Return the experiment's site where something is measured: its last bits may be others elsewhere."""
        space = require_latent_space(experiment)
        is_same_everywhere = not (space.is_measured or space.autoencoder.is_trained)
        return None if is_same_everywhere else experiment.site

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a few numbers per channel."""
        return DiskSpace(100 * experiment.data.x_shape.channels, 0, 1)


class LatentsStage(Stage):
    """Stage whose usual units encode the images of one range; it has no units without a latent space."""

    name = "latents"
    reads = ("catalog", "autoencoder")
    gpus = GpuUse.ONE
    runs_at_every_site = True
    other_kinds: ClassVar = {LATENT_SCALE: LatentScaleUnit()}

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges, then the scale, behind which nothing needs a unit of a range."""
        return [*range_keys(experiment, self.name), LATENT_SCALE] if latent_space(experiment) else []

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog, and the autoencoder where the run trains it."""
        return [CATALOG, *autoencoder_keys(experiment)]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the autoencoder, under its key in the experiment: by this a submission looks for its weights."""
        space = {"autoencoder": settings_to_hash(require_latent_space(experiment).autoencoder)}
        return {"data": {"space": space}, "mirrored": has_mirrored_latents(experiment)}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the moments in float16."""
        columns = 2 if has_mirrored_latents(experiment) else 1
        moments = require_latent_space(experiment).autoencoder.moments
        per_image = columns * moments * math.prod(experiment.data.x_shape) * VALUE_BYTES
        return DiskSpace(images_of_range(experiment, key, images) * per_image, 0, 1)
