"""Stage latents: the moments of the latents of a range of tars, as columns; or shift and scale of all latents."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float16, Float64

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.config.spaces import SPACE_DIGEST
from hpcddm.data import run_samples
from hpcddm.data.column_files import write_together
from hpcddm.data.latent_moments import MIRRORED, MOMENTS, LatentStatistics
from hpcddm.diffusion.spaces.base import LatentSpace
from hpcddm.errors import require
from hpcddm.files import atomic
from hpcddm.files.atomic import digest
from hpcddm.jobs.devices import choose_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.runs.files import LATENTS, SCALE_FILE
from hpcddm.runs.manifest import DIGESTS
from hpcddm.runs.ranges import TRAIN, split_of
from hpcddm.runs.unit_keys import CATALOG, LATENT_SCALE
from hpcddm.runs.unit_training import autoencoder_keys, has_mirrored_latents, require_latent_space
from hpcddm.stages.data.latents import MADE_OF
from hpcddm.stages.workload import ENCODE_LATENTS, READING, Work, Workload

IMAGES_AT_ONCE = 64


def run(experiment: Experiment, unit: Unit) -> Result:
    """Encode one range, or merge the statistics of all."""
    return _scale(experiment, unit) if unit.key == LATENT_SCALE else _encode(experiment, unit)


def work(workload: Workload, key: str) -> list[Work]:
    """List the reading of one range, and the autoencoder's run on it."""
    if key == LATENT_SCALE:
        return []
    images = workload.images_of(key)
    encoded = images * (2 if has_mirrored_latents(workload.experiment) else 1)
    return [Work(READING, False, images, IMAGES_AT_ONCE), Work(ENCODE_LATENTS, False, encoded, IMAGES_AT_ONCE)]


def _encode(experiment: Experiment, unit: Unit) -> Result:
    """Encode the images of one range, and the mirrored ones where trainings see these; measure their latents."""
    choose_device(unit)
    space: LatentSpace = variants.create(LatentSpace, experiment.data.space, experiment.data, unit.input)
    names = [MOMENTS, MIRRORED] if has_mirrored_latents(experiment) else [MOMENTS]
    count, statistics = len(run_samples.range_of(unit)), LatentStatistics.empty(space.shape.channels)
    shape = count, require_latent_space(experiment).autoencoder.moments, *space.shape
    blocks = _moments(space, unit, names, statistics)
    write_together(unit.folder / LATENTS, dict.fromkeys(names, shape), np.dtype("<f2"), blocks)
    made_of = [
        settings_to_hash(require_latent_space(experiment).autoencoder),
        [unit.inputs[key].digest for key in autoencoder_keys(experiment)],
        has_mirrored_latents(experiment),
        unit.inputs[CATALOG].digest_of(ALL),
    ]
    results = {"images": count, "statistics": statistics.values(), DIGESTS: {MADE_OF: digest(made_of)}}
    return Result([LATENTS], results)


def _moments(
    space: LatentSpace, unit: Unit, names: Sequence[str], statistics: LatentStatistics
) -> Iterator[dict[str, Float16[np.ndarray, "n m c h w"]]]:
    """Yield the moments of consecutive images by column; those that are not mirrored are added to the statistics."""
    reader, numbers = run_samples.open_reader(unit, split_of(unit.key)), run_samples.range_of(unit)
    for block, images in run_samples.prefetch_images(reader, numbers, IMAGES_AT_ONCE, unit.data_threads):
        unit.stop_if_requested()
        seen = torch.from_numpy(images)
        views = {name: seen.flip(2) if name == MIRRORED else seen for name in names}
        moments = {name: space.moments(view).cpu().numpy().astype(np.float16) for name, view in views.items()}
        for values in moments.values():
            rows = np.flatnonzero(~np.isfinite(values).all(axis=(1, 2, 3, 4)))
            if len(rows):
                key = reader.keys([block[int(rows[0])]])[0]
                require(False, f"data.space.autoencoder: the latents of {key} are not finite in float16")
        statistics.add(moments[MOMENTS])
        yield moments
        unit.heartbeat.beat(block[-1] + 1 - numbers.start, len(numbers))


def _scale(experiment: Experiment, unit: Unit) -> Result:
    """Merge the statistics of the training images' latents, and write shift and scale, a number per channel each."""
    space, channels = require_latent_space(experiment), experiment.data.x_shape.channels
    ranges = [key for key in unit.inputs_of("latents") if split_of(key) == TRAIN]
    statistics = LatentStatistics.merged([unit.inputs[key].results["statistics"] for key in ranges], channels)
    constant = np.flatnonzero(statistics.deviation == 0)
    if space.scale == "measured" and len(constant):
        require(False, f"data.space.autoencoder: channel {constant[0]} of the latents is the same everywhere")
    numbers = {
        "shift": _per_channel(space.shift, statistics.mean, channels),
        "scale": _per_channel(space.scale, 1 / np.maximum(statistics.deviation, 1e-12), channels),
    }
    measured = {"mean": statistics.mean.tolist(), "deviation": statistics.deviation.tolist()}
    atomic.write_json(unit.folder / SCALE_FILE, numbers | {"measured": measured})
    weights = [unit.inputs[key].digest for key in autoencoder_keys(experiment)]
    made_of = [settings_to_hash(space.autoencoder), weights, has_mirrored_latents(experiment), numbers]
    rounded = {name: [round(value, 4) for value in values] for name, values in (numbers | measured).items()}
    print(", ".join(f"{name} {values}" for name, values in rounded.items()), flush=True)
    return Result([SCALE_FILE], numbers | measured | {DIGESTS: {SPACE_DIGEST: digest(made_of)}})


def _per_channel(given: str | float | list[float], measured: Float64[np.ndarray, " c"], channels: int) -> list[float]:
    """Return a number for every channel: as measured, or as given."""
    if given == "measured":
        # The last digits hang on the ranges in which the sums were made.
        return [float(f"{value:.6g}") for value in measured]
    return [float(value) for value in given] if isinstance(given, list) else [float(given)] * channels
