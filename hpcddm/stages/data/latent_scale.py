"""Stage latent_scale: shift and scale of the latents; behind it nothing needs a unit of a range of latents."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.spaces import WHAT_X_IS
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import range_keys
from hpcddm.runs.unit_keys import LATENT_SCALE
from hpcddm.runs.unit_settings import autoencoder_keys, latent_space, required_space
from hpcddm.stages.data.latents import MADE_OF


def space_keys(experiment: Experiment) -> list[str]:
    """List the units that everything that sees x reads: none where the space is a function of the image alone."""
    return [LATENT_SCALE, *autoencoder_keys(experiment)] if latent_space(experiment) else []


def space_parts(experiment: Experiment) -> dict[str, str]:
    """Return the parts of `space_keys` that count: what x is, not how the autoencoder's training went."""
    if latent_space(experiment) is None:
        return {}
    return {LATENT_SCALE: WHAT_X_IS} | dict.fromkeys(autoencoder_keys(experiment), "")


class LatentScaleStage(Stage):
    """Its one unit merges the statistics of all ranges, where shift or scale are measured."""

    name = "latent_scale"
    reads = ("autoencoder", "latents")

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit, or nothing."""
        return [LATENT_SCALE] if latent_space(experiment) else []

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the latents of all ranges, and the autoencoder where the run trains it."""
        return [*range_keys(experiment, "latents"), *autoencoder_keys(experiment)]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count what the latents are made of: a site whose latents differ in last bits takes the scale of another."""
        return dict.fromkeys(range_keys(experiment, "latents"), MADE_OF)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover shift and scale; the latents say the rest."""
        space = required_space(experiment)
        return {"shift": space.shift, "scale": space.scale}

    def site(self, experiment: Experiment, key: str) -> str | None:
        """Return the experiment's site where something is measured: its last bits may be others elsewhere."""
        space = required_space(experiment)
        is_same_everywhere = not (space.is_measured or space.autoencoder.is_trained)
        return None if is_same_everywhere else experiment.site

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a few numbers per channel."""
        return DiskSpace(100 * experiment.data.x_shape.channels, 0, 1)
