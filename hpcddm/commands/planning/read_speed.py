"""Speed of reading: some real samples, far from each other, through the reader of a training and in its threads."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from hpcddm.config import variants
from hpcddm.config.data import DataSettings
from hpcddm.config.experiment import Experiment
from hpcddm.data.augmentations.base import source_side
from hpcddm.data.catalog import Catalog, CatalogPart, ImageFormat, SplitEntry
from hpcddm.data.column_files import write_columns
from hpcddm.data.image_decoding import ImageError
from hpcddm.data.reader import CatalogReader
from hpcddm.data.run_samples import list_order
from hpcddm.data.sample_file import SampleFile, size_and_mtime
from hpcddm.data.tars import tar_writing
from hpcddm.data.tars.record import Record
from hpcddm.data.tars.tar_index import TarIndex, columns_of, index_pictures, index_tar
from hpcddm.data.transforms.base import Transform
from hpcddm.errors import UserError, require
from hpcddm.randomness.streams import PLANNED_ORDER
from hpcddm.runs.ranges import TRAIN
from hpcddm.sources.base import InPlaceSource, Source

BATCH = 16
"""Samples that a thread reads at once."""


def make_read_step(experiment: Experiment, folder: Path, count: int, threads: int) -> Callable[[], object]:
    """Return a function that reads so many training samples in so many threads.

    They are found in the tars of the source, or written to one in `folder`; where there are fewer, they are read again.
    Raises `UserError` where there are none.
    """
    data = experiment.data
    if data.source.uses_existing_tars:
        indices = _adopted(data, count)
    else:
        path = folder / "reading.tar"
        if data.source.reads_in_place:
            index = index_pictures(_usable(data, count))
        else:
            # As the stage shard does.
            transform = variants.create(Transform, data.transform)
            tar_writing.write_tar(path, _usable(data, count), data.image_size, data.channels, transform)
            index = index_tar(path)
        indices = {SampleFile(path.name, *((0, 0) if index.files else size_and_mtime(path))): index}
    catalog = _catalog(data, folder, indices)
    files = [
        path
        for index in indices.values()
        for path in (map(catalog.source_file, index.files) if index.files else [index.path])
    ]
    reader = CatalogReader(catalog)
    sound = np.array([number for number in range(len(catalog)) if _is_sound(reader, number)], np.int64)
    require(len(sound) > 0, "data.source: none of the first samples can be read")
    order = list_order(experiment, PLANNED_ORDER, sound)
    spans = [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]

    def read() -> None:
        for path in files:
            _forget(path)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda span: len(reader.images(order.sample_numbers(span))), spans))

    return read


def _adopted(data: DataSettings, count: int) -> dict[SampleFile, TarIndex]:
    """Index the first tars of the source that have so many training samples, and take these from all of each."""
    indices: dict[SampleFile, TarIndex] = {}
    lacking = count
    for own in variants.create(InPlaceSource, data.source).tars(TRAIN):
        index = own.index().index
        chosen = np.zeros(len(index.keys), dtype=bool)
        chosen[_spread(len(chosen), lacking)] = True
        if chosen.any():
            entry = own.entry()
            indices[entry] = index.select(chosen.tolist())
            lacking -= len(indices[entry].keys)
        if lacking == 0:
            break
    require(indices != {}, "data.source: its tars have no training sample")
    return indices


def _usable(data: DataSettings, count: int) -> Iterator[Record]:
    """Yield training samples that can be read."""
    records = variants.create(Source, data.source).open_split(TRAIN)
    for number in _spread(len(records), count):
        with suppress(ImageError):
            yield records[number]


def _spread(size: int, count: int) -> list[int]:
    """Choose at most `count` of the numbers 0 ... size - 1, as far from each other as they can be."""
    return [number * size // count for number in range(count)] if count < size else list(range(size))


def _catalog(data: DataSettings, folder: Path, indices: dict[SampleFile, TarIndex]) -> Catalog:
    """Return a catalog of the samples; pictures of existing tars have the format that a training reads."""
    columns = columns_of(dict(enumerate(indices.values())))
    write_columns(folder / "reading.h5", columns)
    side = source_side(data.augmentations, data.image_size)
    form = ImageFormat(data.channels, side, data.transform.model_dump()) if data.source.reads_in_place else None
    tars = [
        replace(entry, file=index.path.name, collection=str(index.path.parent))
        for entry, index in indices.items()
        if index.files is None
    ]
    part = CatalogPart(TRAIN, "reading.h5", len(columns["key"]), digest="")
    folders = data.source.source_folders() | {tar.collection: Path(str(tar.collection)) for tar in tars}
    return Catalog(folder, SplitEntry(sorted(columns), tars, [part], form), lambda: folders)


def _is_sound(reader: CatalogReader, number: int) -> bool:
    """Tell if a picture can be read; broken ones are left out of a run, too."""
    with suppress(UserError):
        reader.images([number])
        return True
    return False


def _forget(path: Path) -> None:
    """Ask the kernel to drop a file from its page cache, so that reads come from the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
