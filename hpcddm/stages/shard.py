"""Stage shard: images from a source become one WebDataset tar with its byte-offset index."""

from collections.abc import Iterator

import numpy as np

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.data import tar
from hpcddm.data.sources.base import Record, Source, Split
from hpcddm.errors import UserError, require
from hpcddm.networks.workload import TAR as TAR_WORK
from hpcddm.networks.workload import Work, Workload
from hpcddm.pipeline.disk import shard_range
from hpcddm.pipeline.shard import INDEX, KEYS, TAR
from hpcddm.rundir import atomic
from hpcddm.runtime.unit import Result, Unit

BEAT_EVERY = 256
IMAGES_TIMED = 64
"""Images that a benchmark writes at once."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Write this unit's part of the training or of the held-out images."""
    data = settings.data
    split, part = unit.name.split("-")
    parts = data.shards if split == "train" else data.heldout_shards
    folder = str((unit.run.root / data.source.folder).resolve())
    source = data.source.model_copy(update={"folder": folder})
    records = plugins.create(Source, source).open_split(split)
    numbers = shard_range(len(records), int(part), parts)
    require(len(numbers) > 0, f"{folder}: {len(records)} {split} images are too few for {parts} shards")
    path = unit.folder / TAR
    with atomic.replacing(path, durable=False) as staged:
        count = tar.write_tar(staged, _pick(records, numbers, unit), data.image_size, data.channels)
    found = tar.index_tar(path)
    require(len(found.keys) == count, f"{path}: {count} images written, {len(found.keys)} found")
    if data.num_classes is not None:
        if found.labels is None:
            raise UserError(f"data.num_classes: {data.num_classes}, but the images in {folder} have no classes")
        largest = found.labels.max()
        require(largest < data.num_classes, f"data.num_classes: {data.num_classes}, but {folder} has class {largest}")
    with atomic.replacing(unit.folder / INDEX, durable=False) as staged, open(staged, "wb") as file:
        np.save(file, found.rows(int(part)))
    atomic.write_text(unit.folder / KEYS, "".join(f"{key}\n" for key in found.keys))
    return Result([TAR, INDEX, KEYS], {"images": count, "class_names": records.class_names})


def work(workload: Workload, key: str) -> list[Work]:
    """List the images that become PNG."""
    return [Work(TAR_WORK, False, workload.images_of(key), IMAGES_TIMED)]


def _pick(records: Split, numbers: range, unit: Unit) -> Iterator[Record]:
    for done, number in enumerate(numbers):
        if number % BEAT_EVERY == 0:
            unit.leave_if_told()
        unit.heartbeat.beat(done, len(numbers))
        yield records[number]
