"""Stage encode: the features of a range of tars, as a column."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float16, Float32

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.shapes import ImageShape
from hpcddm.data import samples
from hpcddm.data.catalog import blocks_of
from hpcddm.data.column_files import Blocks, write_columns
from hpcddm.data.reader import TarReader
from hpcddm.encoders.image.base import ImageEncoder, SampleEncoder
from hpcddm.encoders.image.column import FEATURE_TYPE, as_column
from hpcddm.jobs.devices import own_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import FEATURES
from hpcddm.runs.ranges import split_of
from hpcddm.stages.workload import ENCODER, READING, Work, Workload

IMAGES_AT_ONCE = 256


def run(settings: Experiment, unit: Unit) -> Result:
    """Encode the images of one range."""
    reader, numbers = samples.reader(unit, split_of(unit.key)), samples.range_of(unit)
    encoder = settings.encode.encoder
    if encoder.uses_gpu:
        own_device(unit)
    shape = len(numbers), encoder.dimensions(settings.data)
    blocks = _features(variants.create(SampleEncoder, encoder), settings.data, reader, numbers, unit)
    write_columns(unit.folder / FEATURES, {samples.FEATURE: Blocks(shape, FEATURE_TYPE, blocks)})
    return Result([FEATURES], {"images": shape[0], "dimensions": shape[1]})


def work(workload: Workload, key: str) -> list[Work]:
    """List the reading of one range, and the encoder's run on it."""
    reads_images = workload.settings.encode.encoder.reads_images
    kinds = [READING, ENCODER] if reads_images else [ENCODER]
    return [Work(kind, False, workload.images_of(key), IMAGES_AT_ONCE) for kind in kinds]


def _features(
    encoder: SampleEncoder, data: ImageShape, reader: TarReader, numbers: range, unit: Unit
) -> Iterator[Float16[np.ndarray, "n d"]]:
    """Yield the features of consecutive samples."""
    for block, computed in _computed(encoder, reader, numbers, unit):

        def key_of(place: int, block: range = block) -> str:
            return reader.keys(block[place : place + 1])[0]

        yield as_column(encoder.settings, data, computed, key_of)
        unit.heartbeat.beat(block[-1] + 1 - numbers.start, len(numbers))


def _computed(
    encoder: SampleEncoder, reader: TarReader, numbers: range, unit: Unit
) -> Iterator[tuple[range, Float32[np.ndarray, "n d"]]]:
    """Yield consecutive samples with what the encoder computes of them; images are read ahead of it."""
    if isinstance(encoder, ImageEncoder):
        for block, images in samples.images_ahead(reader, numbers, IMAGES_AT_ONCE, unit.data_threads):
            unit.stop_if_requested()
            yield block, encoder.encode(images)
    else:
        for block in blocks_of(numbers, IMAGES_AT_ONCE):
            unit.stop_if_requested()
            yield block, encoder.features(reader, block)
