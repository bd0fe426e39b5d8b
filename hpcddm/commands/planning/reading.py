"""Speed of reading: some real samples, far from each other, through the reader of a training and in its threads."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hpcddm.config import variants
from hpcddm.config.data import DataSettings
from hpcddm.config.experiment import Experiment
from hpcddm.data import tar
from hpcddm.data.adopted import index_adopted
from hpcddm.data.augmentations.base import source_side
from hpcddm.data.catalog import Catalog, Part, PictureForm, SplitEntry, Tar, stamp_of
from hpcddm.data.column_files import write_columns
from hpcddm.data.pictures import PictureError
from hpcddm.data.reader import TarReader
from hpcddm.data.record import Record
from hpcddm.data.samples import list_order
from hpcddm.data.sources.base import Source, TarSource
from hpcddm.data.tar_index import TarIndex, columns_of, index_tar
from hpcddm.data.transforms.base import Transform
from hpcddm.errors import UserError, require
from hpcddm.runs.ranges import TRAIN

BATCH = 16
"""Samples that a thread reads at once."""


def step(settings: Experiment, folder: Path, count: int, threads: int) -> Callable[[], object]:
    """Return a function that reads so many training samples in so many threads.

    They are found in the tars of the source, or written to one in `folder`; where there are fewer, they are read again.
    Raises `UserError` where there are none.
    """
    data = settings.data
    adopts = data.source.adopts_tars
    indices = _adopted(data, count) if adopts else [_written(data, folder / "reading.tar", count)]
    catalog = _catalog(data, folder, indices)
    reader = TarReader(catalog)
    sound = np.array([number for number in range(len(catalog)) if _is_sound(reader, number)], np.int64)
    require(len(sound) > 0, "data.source: none of the first samples can be read")
    order = list_order(settings, "plan", sound)
    spans = [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]

    def read() -> None:
        for index in indices:
            _forget(index.path)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda span: len(reader.images(order.rows(span))), spans))

    return read


def _adopted(data: DataSettings, count: int) -> list[TarIndex]:
    """Index the first tars of the source that have so many training samples, and take these from all of each."""
    indices: list[TarIndex] = []
    lacking = count
    for own in variants.create(TarSource, data.source).tars(TRAIN):
        index = index_adopted(own.path, own.layout, own.prefix, is_wanted=own.is_of_split).index
        chosen = np.zeros(len(index.keys), dtype=bool)
        chosen[_spread(len(chosen), lacking)] = True
        if chosen.any():
            indices.append(index.taken(chosen.tolist()))
            lacking -= len(indices[-1].keys)
        if lacking == 0:
            break
    require(indices != [], "data.source: its tars have no training sample")
    return indices


def _written(data: DataSettings, path: Path, count: int) -> TarIndex:
    """Write training samples as the stage shard does."""
    records = variants.create(Source, data.source).open_split(TRAIN)

    def usable() -> Iterator[Record]:
        for number in _spread(len(records), count):
            try:
                yield records[number]
            except PictureError:
                continue

    tar.write_tar(path, usable(), data.image_size, data.channels, variants.create(Transform, data.transform))
    return index_tar(path)


def _spread(size: int, count: int) -> list[int]:
    """Choose at most `count` of the numbers 0 ... size - 1, as far from each other as they can be."""
    return [number * size // count for number in range(count)] if count < size else list(range(size))


def _catalog(data: DataSettings, folder: Path, indices: list[TarIndex]) -> Catalog:
    """Return a catalog of the samples; the pictures of adopted tars are seen as a training sees them."""
    columns = columns_of(dict(enumerate(indices)))
    write_columns(folder / "reading.h5", columns)
    side = source_side(data.augmentations, data.image_size)
    form = PictureForm(data.channels, side, data.transform.model_dump()) if data.source.adopts_tars else None
    tars = [Tar(index.path.name, *stamp_of(index.path), collection=str(index.path.parent)) for index in indices]
    part = Part(TRAIN, "reading.h5", len(columns["key"]), digest="")
    folders = {tar.collection: Path(str(tar.collection)) for tar in tars}
    return Catalog(folder, SplitEntry(sorted(columns), tars, [part], form), lambda: folders)


def _is_sound(reader: TarReader, number: int) -> bool:
    """Tell if a picture can be read; broken ones are left out of a run, too."""
    try:
        reader.images([number])
    except UserError:
        return False
    return True


def _forget(path: Path) -> None:
    """Ask the kernel to forget what it has read of a file, so that it comes from where it is stored."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
