"""Stage shard: images from a source become WebDataset tars, with columns of what is known of each sample."""

from collections.abc import Iterator

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.data import tar
from hpcddm.data.columns import write_columns
from hpcddm.data.sources.base import Record, Source, Split
from hpcddm.data.tar import TarIndex
from hpcddm.data.transforms.base import Transform
from hpcddm.errors import UserError, require
from hpcddm.networks.workload import TAR as TAR_WORK
from hpcddm.networks.workload import Work, Workload
from hpcddm.paths import located
from hpcddm.pipeline.ranges import images_of_tar, split_of, tars_of
from hpcddm.pipeline.shard import COLUMNS, tar_file
from hpcddm.rundir import atomic
from hpcddm.runtime.unit import Result, Unit

BEAT_EVERY = 256
IMAGES_TIMED = 64
"""Images that a benchmark writes at once."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Write this unit's tars of the training or of the held-out images, and the columns of their samples."""
    data, tars, split = settings.data, tars_of(settings, unit.key), split_of(unit.key)
    records = plugins.create(Source, located(data.source, unit.run.root)).open_split(split)
    images = {number: images_of_tar(settings, split, number, len(records)) for number in tars}
    require(all(images.values()), f"data.source: {len(records)} {split} images are too few for so many tars")
    span = range(images[tars[0]].start, images[tars[-1]].stop)
    transform = plugins.create(Transform, data.transform)
    indices: dict[int, TarIndex] = {}
    for number in tars:
        path = unit.folder / tar_file(number)
        with atomic.replacing(path, durable=False) as staged:
            picked = _pick(records, images[number], span, unit)
            count = tar.write_tar(staged, picked, data.image_size, data.channels, transform)
        indices[number] = tar.index_tar(path)
        require(len(indices[number].keys) == count, f"{path}: {count} images written, others found")
        _check_classes(data.num_classes, indices[number])
    columns = tar.columns_of(indices)
    write_columns(unit.folder / COLUMNS, columns)
    results = {"images": len(span), "columns": sorted(columns), "class_names": records.class_names}
    return Result([COLUMNS, *map(tar_file, tars)], results)


def work(workload: Workload, key: str) -> list[Work]:
    """List the images that become PNG."""
    return [Work(TAR_WORK, False, workload.images_of(key), IMAGES_TIMED)]


def _check_classes(num_classes: int | None, index: TarIndex) -> None:
    """Raise `UserError` where the images lack a class, or have one that the experiment has not."""
    if num_classes is None:
        return
    if index.labels is None:
        raise UserError(f"data.num_classes: {num_classes}, but the images of data.source have no classes")
    largest = index.labels.max()
    require(largest < num_classes, f"data.num_classes: {num_classes}, but data.source has class {largest}")


def _pick(records: Split, images: range, span: range, unit: Unit) -> Iterator[Record]:
    """Yield the records of one tar among those of the unit."""
    for number in images:
        if number % BEAT_EVERY == 0:
            unit.stop_if_requested()
        unit.heartbeat.beat(number - span.start, len(span))
        yield records[number]
