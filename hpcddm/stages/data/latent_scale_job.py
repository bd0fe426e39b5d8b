"""Stage latent_scale: shift and scale that bring latents to zero mean and unit variance, or those of the settings."""

import numpy as np
from jaxtyping import Float64

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.config.spaces import WHAT_X_IS
from hpcddm.data.latents import Statistics
from hpcddm.errors import require
from hpcddm.files import atomic
from hpcddm.files.atomic import digest
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import SCALE_FILE
from hpcddm.runs.manifest import DIGESTS
from hpcddm.runs.ranges import TRAIN, split_of
from hpcddm.runs.unit_settings import autoencoder_keys, has_mirrored, required_space


def run(settings: Experiment, unit: Unit) -> Result:
    """Merge the statistics of the training images' latents, and write shift and scale, a number per channel each."""
    space, channels = required_space(settings), settings.data.x_shape.channels
    ranges = [key for key in unit.inputs_of("latents") if split_of(key) == TRAIN]
    statistics = Statistics.merged([unit.inputs[key].results["statistics"] for key in ranges], channels)
    constant = np.flatnonzero(statistics.deviation == 0)
    if space.scale == "measured" and len(constant):
        require(False, f"data.space.autoencoder: channel {constant[0]} of the latents is the same everywhere")
    numbers = {
        "shift": _per_channel(space.shift, statistics.mean, channels),
        "scale": _per_channel(space.scale, 1 / np.maximum(statistics.deviation, 1e-12), channels),
    }
    measured = {"mean": statistics.mean.tolist(), "deviation": statistics.deviation.tolist()}
    atomic.write_json(unit.folder / SCALE_FILE, numbers | {"measured": measured})
    weights = [unit.inputs[key].digest for key in autoencoder_keys(settings)]
    made_of = [hashed(space.autoencoder), weights, has_mirrored(settings), numbers]
    rounded = {name: [round(value, 4) for value in values] for name, values in (numbers | measured).items()}
    print(", ".join(f"{name} {values}" for name, values in rounded.items()), flush=True)
    return Result([SCALE_FILE], numbers | measured | {DIGESTS: {WHAT_X_IS: digest(made_of)}})


def _per_channel(given: str | float | list[float], measured: Float64[np.ndarray, " c"], channels: int) -> list[float]:
    """Return a number for every channel: as measured, or as given."""
    if given == "measured":
        # The last digits hang on the ranges in which the sums were made.
        return [float(f"{value:.6g}") for value in measured]
    return [float(value) for value in given] if isinstance(given, list) else [float(given)] * channels
