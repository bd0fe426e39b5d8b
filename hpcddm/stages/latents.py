"""Stage latents: the moments of the latents of a range of tars, as columns."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float16

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.data import samples
from hpcddm.data.catalog import blocks_of
from hpcddm.data.column_files import Blocks, write_columns
from hpcddm.data.latents import MIRRORED, MOMENTS, Statistics
from hpcddm.devices import own_device
from hpcddm.errors import require
from hpcddm.networks.workload import ENCODE_LATENTS, SINGLE_READING, Work, Workload
from hpcddm.pipeline.autoencoder import autoencoder_keys, required_space
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.pipeline.keys import CATALOG
from hpcddm.pipeline.latents import LATENTS, MADE_OF, has_mirrored
from hpcddm.pipeline.ranges import split_of
from hpcddm.rundir.manifest import DIGESTS, digest
from hpcddm.runtime.unit import Result, Unit
from hpcddm.schema import hashed
from hpcddm.spaces.base import LatentSpace

IMAGES_AT_ONCE = 64


def run(settings: Experiment, unit: Unit) -> Result:
    """Encode the images of one range, and the mirrored ones where trainings see these; measure their latents."""
    own_device(unit)
    space: LatentSpace = plugins.create(LatentSpace, settings.data.space, settings.data, unit.input)
    passes = [MOMENTS, MIRRORED] if has_mirrored(settings) else [MOMENTS]
    count, statistics = len(samples.range_of(unit)), Statistics.empty(space.shape.channels)
    maps = required_space(settings).autoencoder.moments
    columns = {
        name: Blocks(
            (count, maps, *space.shape),
            np.dtype("<f2"),
            _moments(space, unit, name == MIRRORED, statistics, (number * count, len(passes) * count)),
        )
        for number, name in enumerate(passes)
    }
    write_columns(unit.folder / LATENTS, columns)
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
    images = workload.images_of(key) * (2 if has_mirrored(workload.settings) else 1)
    return [Work(kind, False, images, IMAGES_AT_ONCE) for kind in (SINGLE_READING, ENCODE_LATENTS)]


def _moments(
    space: LatentSpace, unit: Unit, mirrored: bool, statistics: "Statistics", progress: tuple[int, int]
) -> Iterator[Float16[np.ndarray, "n m c h w"]]:
    """Yield the moments of consecutive images; those that are not mirrored are added to the statistics.

    progress: images that were encoded before these, and all.
    """
    reader, numbers = samples.reader(unit, split_of(unit.key)), samples.range_of(unit)
    for block in blocks_of(numbers, IMAGES_AT_ONCE):
        unit.stop_if_requested()
        images = torch.from_numpy(reader.images(block))
        moments = space.moments(images.flip(2) if mirrored else images).cpu().numpy().astype(np.float16)
        rows = np.flatnonzero(~np.isfinite(moments).all(axis=(1, 2, 3, 4)))
        if len(rows):
            key = reader.keys([block[int(rows[0])]])[0]
            require(False, f"data.space.autoencoder: the latents of {key} are not finite in float16")
        if not mirrored:
            statistics.add(moments)
        yield moments
        unit.heartbeat.beat(progress[0] + block[-1] + 1 - numbers.start, progress[1])
