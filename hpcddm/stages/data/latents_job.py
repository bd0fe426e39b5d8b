"""Stage latents: the moments of the latents of a range of tars, as columns."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float16

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.data import samples
from hpcddm.data.column_files import write_together
from hpcddm.data.latents import MIRRORED, MOMENTS, Statistics
from hpcddm.diffusion.spaces.base import LatentSpace
from hpcddm.errors import require
from hpcddm.files.atomic import digest
from hpcddm.jobs.devices import own_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.runs.files import LATENTS
from hpcddm.runs.manifest import DIGESTS
from hpcddm.runs.ranges import split_of
from hpcddm.runs.unit_keys import CATALOG
from hpcddm.runs.unit_settings import autoencoder_keys, has_mirrored, required_space
from hpcddm.stages.data.latents import MADE_OF
from hpcddm.stages.workload import ENCODE_LATENTS, READING, Work, Workload

IMAGES_AT_ONCE = 64


def run(settings: Experiment, unit: Unit) -> Result:
    """Encode the images of one range, and the mirrored ones where trainings see these; measure their latents."""
    own_device(unit)
    space: LatentSpace = variants.create(LatentSpace, settings.data.space, settings.data, unit.input)
    names = [MOMENTS, MIRRORED] if has_mirrored(settings) else [MOMENTS]
    count, statistics = len(samples.range_of(unit)), Statistics.empty(space.shape.channels)
    shape = count, required_space(settings).autoencoder.moments, *space.shape
    blocks = _moments(space, unit, names, statistics)
    write_together(unit.folder / LATENTS, dict.fromkeys(names, shape), np.dtype("<f2"), blocks)
    made_of = [
        hashed(required_space(settings).autoencoder),
        [unit.inputs[key].digest for key in autoencoder_keys(settings)],
        has_mirrored(settings),
        unit.inputs[CATALOG].digest_of(ALL),
    ]
    results = {"images": count, "statistics": statistics.values(), DIGESTS: {MADE_OF: digest(made_of)}}
    return Result([LATENTS], results)


def work(workload: Workload, key: str) -> list[Work]:
    """List the reading of one range, and the autoencoder's run on it."""
    images = workload.images_of(key)
    encoded = images * (2 if has_mirrored(workload.settings) else 1)
    return [Work(READING, False, images, IMAGES_AT_ONCE), Work(ENCODE_LATENTS, False, encoded, IMAGES_AT_ONCE)]


def _moments(
    space: LatentSpace, unit: Unit, names: Sequence[str], statistics: Statistics
) -> Iterator[dict[str, Float16[np.ndarray, "n m c h w"]]]:
    """Yield the moments of consecutive images by column; those that are not mirrored are added to the statistics."""
    reader, numbers = samples.reader(unit, split_of(unit.key)), samples.range_of(unit)
    for block, images in samples.images_ahead(reader, numbers, IMAGES_AT_ONCE, unit.data_threads):
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
