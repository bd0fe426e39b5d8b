"""Stage encode: the features of a range of tars, as a column."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float16, Float32

from hpcddm.config import variants
from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.column_files import RowBlocks, write_columns
from hpcddm.data.reader import CatalogReader
from hpcddm.encoders.image.base import ImageEncoder, SampleEncoder
from hpcddm.encoders.image.feature_column import FEATURE_TYPE, as_column
from hpcddm.jobs.devices import choose_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import FEATURES
from hpcddm.runs.ranges import split_of
from hpcddm.stages.workload import ENCODER, READING, Work, Workload

IMAGES_AT_ONCE = 256


def run(experiment: Experiment, unit: Unit) -> Result:
    """Encode the images of one range."""
    reader, numbers = run_samples.open_reader(unit, split_of(unit.key)), run_samples.range_of(unit)
    encoder = experiment.encode.encoder
    if encoder.uses_gpu:
        choose_device(unit)
    shape = len(numbers), encoder.dimensions(experiment.data)
    blocks = _features(variants.create(SampleEncoder, encoder), experiment.data, reader, numbers, unit)
    write_columns(unit.folder / FEATURES, {run_samples.FEATURE: RowBlocks(shape, FEATURE_TYPE, blocks)})
    return Result([FEATURES], {"images": shape[0], "dimensions": shape[1]})


def work(workload: Workload, key: str) -> list[Work]:
    """List the reading of one range, and the encoder's run on it."""
    reads_images = workload.experiment.encode.encoder.reads_images
    kinds = [READING, ENCODER] if reads_images else [ENCODER]
    return [Work(kind, False, workload.images_of(key), IMAGES_AT_ONCE) for kind in kinds]


def _features(
    encoder: SampleEncoder, data: ImageShape, reader: CatalogReader, numbers: range, unit: Unit
) -> Iterator[Float16[np.ndarray, "n d"]]:
    """Yield the features of consecutive samples."""
    for block, computed in _computed(encoder, reader, numbers, unit):

        def key_of(place: int, block: range = block) -> str:
            return reader.keys(block[place : place + 1])[0]

        yield as_column(encoder.settings, data, computed, key_of)
        unit.heartbeat.beat(block[-1] + 1 - numbers.start, len(numbers))


def _computed(
    encoder: SampleEncoder, reader: CatalogReader, numbers: range, unit: Unit
) -> Iterator[tuple[range, Float32[np.ndarray, "n d"]]]:
    """Yield consecutive samples with their features; images are read ahead of the encoder."""
    if isinstance(encoder, ImageEncoder):
        for block, images in run_samples.prefetch_images(reader, numbers, IMAGES_AT_ONCE, unit.data_threads):
            unit.stop_if_requested()
            yield block, encoder.encode(images)
    else:
        for block in split_into_blocks(numbers, IMAGES_AT_ONCE):
            unit.stop_if_requested()
            yield block, encoder.features(reader, block)
