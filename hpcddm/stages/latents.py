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
from hpcddm.pipeline.autoencoder import latent_space
from hpcddm.pipeline.latents import LATENTS, has_mirrored
from hpcddm.pipeline.ranges import split_of
from hpcddm.runtime.unit import Result, Unit
from hpcddm.spaces.base import LatentSpace

IMAGES_AT_ONCE = 64


def run(settings: Experiment, unit: Unit) -> Result:
    """Encode the images of one range, and the mirrored ones where trainings see these; measure their latents."""
    own_device(unit)
    space: LatentSpace = plugins.create(LatentSpace, settings.data.space, settings.data, unit.input)
    passes = [MOMENTS, MIRRORED] if has_mirrored(settings) else [MOMENTS]
    count, statistics = len(samples.range_of(unit)), Statistics.empty(space.shape.channels)
    maps = latent_maps(settings)
    columns = {
        name: Blocks(
            (count, maps, *space.shape),
            np.dtype("<f2"),
            _moments(space, unit, name == MIRRORED, statistics, (number * count, len(passes) * count)),
        )
        for number, name in enumerate(passes)
    }
    write_columns(unit.folder / LATENTS, columns)
    return Result([LATENTS], {"images": count, "statistics": statistics.values()})


def work(workload: Workload, key: str) -> list[Work]:
    """List the reading of one range, and the autoencoder's run on it."""
    images = workload.images_of(key) * (2 if has_mirrored(workload.settings) else 1)
    return [Work(kind, False, images, IMAGES_AT_ONCE) for kind in (SINGLE_READING, ENCODE_LATENTS)]


def latent_maps(settings: Experiment) -> int:
    """Return the number of maps that the autoencoder makes of an image: of moments, or of latents alone."""
    space = latent_space(settings)
    return 0 if space is None else space.autoencoder.moments


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
