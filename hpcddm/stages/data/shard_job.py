"""Stage shard: writes images of a source to WebDataset tars, or adopts tars in place; writes columns of both."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress, islice
from pathlib import Path
from typing import TypeVar

from PIL import Image

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.sources import SourceSettings
from hpcddm.data.column_files import Spool
from hpcddm.data.image_decoding import ImageError, fit_to_shape, read_image
from hpcddm.data.sample_file import SampleFile
from hpcddm.data.tars.record import Record
from hpcddm.data.tars.tar_index import TarIndex, columns_of, index_pictures, index_tar
from hpcddm.data.tars.tar_writing import write_tar
from hpcddm.data.transforms.base import Transform
from hpcddm.errors import UserError, require
from hpcddm.files import atomic
from hpcddm.files.atomic import digest
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import BROKEN, COLUMNS, PASSED_OVER, tar_file
from hpcddm.runs.passed_over import Counts, PassedOverItem, add, escape_name
from hpcddm.runs.ranges import TRAIN, images_of_tar, split_of, tars_of
from hpcddm.sources.base import InPlaceSource, Source, Split
from hpcddm.sources.filtering import Filter
from hpcddm.sources.source_files import LACKS, IndexedFile, SourceFile, lacking, valued, values_of
from hpcddm.stages.progress import advance
from hpcddm.stages.workload import TAR as TAR_WORK
from hpcddm.stages.workload import Work, Workload

T = TypeVar("T")
IMAGES_AT_ONCE, PIXELS_AT_ONCE = 256, 16_000_000
"""Most pictures, and pixels, that wait for the filter together."""
KEYS_AT_ONCE = 1 << 20
"""Number of keys that are looked up in a table together: each time, all of it is read."""
IMAGES_TIMED = 64
"""Images that a benchmark writes at once."""
FIRST = 0
"""Number of the tar of a split whose unit writes the files that all tars share."""
NAMED = 20
"""Number of broken samples that a manifest names; a file lists all of them."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Write this unit's tars, or adopt them, and write the columns of their samples."""
    data = experiment.data
    source = variants.create(Source, data.source)
    chosen = Filter.from_settings(data)
    with Spool(unit.folder) as spool:
        collected = _CollectedSamples(chosen, spool)
        if isinstance(source, InPlaceSource):
            return _use_in_place(experiment, unit, source, collected)
        return _write(experiment, unit, source, collected)


def work(workload: Workload, key: str) -> list[Work]:
    """List the images that become PNG."""
    return [Work(TAR_WORK, False, workload.images_of(key), IMAGES_TIMED)]


@dataclass
class _CollectedSamples:
    """Samples, tars, broken and skipped samples that a unit has collected so far."""

    filter: Filter
    spool: Spool
    """Columns of the samples."""
    tars: list[SampleFile] = field(default_factory=list)
    broken: list[dict[str, str]] = field(default_factory=list)
    """Samples that cannot be used: tar, key, reason."""
    passed_over: Counts = field(default_factory=dict)
    values: set[str] = field(default_factory=set)
    """Columns of `LACKS` that samples have, or need."""
    adopted: list[tuple[str, TarIndex]] = field(default_factory=list)
    """Tars whose samples lack one of them, and may yet be broken."""
    items: list[dict[str, object]] = field(default_factory=list)
    """All that is passed over: tar, name, reason, is_broken."""

    def add(self, number: int, index: TarIndex, num_classes: int | None) -> None:
        """Add the samples of a tar, by its number in the split.

        Raises `UserError` where they lack a class or have one too many.
        """
        if num_classes is not None and index.keys:
            _check_classes(num_classes, index)
        columns = columns_of({number: index})
        self.spool.append(columns)

    def adopt(self, number: int, index: TarIndex, num_classes: int | None, tar: str) -> None:
        """Add the samples of another program's tar; those that lack what samples of any tar have are broken."""
        self.values |= valued(index) | ({"label"} if num_classes is not None else set())
        for earlier, its_index in self.adopted:
            if reason := lacking(its_index, self.values):
                self._break(earlier, its_index.keys, reason)
                self.spool.clear()
        self.adopted = [pair for pair in self.adopted if self.spool.rows]
        if reason := lacking(index, self.values):
            self._break(tar, index.keys, reason)
            return
        if self.values != LACKS.keys():
            self.adopted.append((tar, index))
        self.add(number, index, num_classes)

    def _break(self, tar: str, keys: Iterable[str], reason: str) -> None:
        self.broken += [{"tar": tar, "key": escape_name(key), "reason": reason} for key in keys]

    def pass_over(self, items: Iterable[PassedOverItem], tar: str = "") -> None:
        """Note what is passed over, and which of it is broken; tar: its path, where the items are members of one."""
        for item in items:
            add(self.passed_over, [item._replace(name=f"{Path(tar).name}: {item.name}") if tar else item])
            self.items.append({"tar": tar, **item._asdict()})
            if item.is_broken:
                self.broken.append({"tar": tar, "key": item.name, "reason": item.reason})

    def look_up_at_once(self, keys: int) -> float:
        """Return the share that so many keys of a tar are of those that are looked up together."""
        return keys / KEYS_AT_ONCE if self.filter.has_table else 1.0

    def result(self, unit: Unit, class_names: list[str], written: list[str], listing: str | None) -> Result:
        """Write the columns, what is broken and what is passed over.

        written: the unit's own tars; listing: as `_listing` hashes it.
        """
        self.pass_over(self.filter.without_row)
        self.spool.write(unit.folder / COLUMNS)
        _write_lines(unit.folder / BROKEN, self.broken)
        # None of the outputs: what is made of the samples does not depend on a file beside them.
        _write_lines(unit.folder / PASSED_OVER, self.items)
        results = {
            "images": self.spool.rows,
            "columns": sorted(self.spool.names),
            "class_names": class_names,
            "listing": listing,
            "tars": [asdict(tar) for tar in self.tars],
            "broken": {"samples": len(self.broken), "first": self.broken[:NAMED]},
            "passed_over": self.passed_over,
            "dropped": {"samples": self.filter.dropped, "by_condition": dict(self.filter.reasons)},
        }
        if self.filter.table_counts is not None:
            results["table"] = self.filter.table_counts
        return Result([COLUMNS, *written, *([BROKEN] if self.broken else [])], results)


def _write_lines(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as JSON lines; without rows remove the file of an earlier attempt."""
    if rows:
        atomic.write_text(path, "".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        path.unlink(missing_ok=True)


def _write(experiment: Experiment, unit: Unit, source: Source[SourceSettings], collected: _CollectedSamples) -> Result:
    """Write the tars of this unit's records, or find its pictures where they are."""
    data, tars, split = experiment.data, tars_of(experiment, unit.key), split_of(unit.key)
    records = source.open_split(split)
    source_names = records.class_names
    if data.class_names and data.source.captions_name_classes:
        records.rename_classes(data.class_names)
    images = {number: images_of_tar(experiment, split, number, len(records)) for number in tars}
    require(all(images.values()), f"data.source: {len(records)} {split} images are too few for so many tars")
    span = range(images[tars[0]].start, images[tars[-1]].stop)
    if FIRST in tars:
        collected.pass_over(records.passed_over)
    transform = variants.create(Transform, data.transform)

    def fit(image: Image.Image) -> Image.Image:
        return fit_to_shape(image, data.channels, data.image_size, transform)

    for group in _grouped(tars, lambda number: collected.look_up_at_once(len(images[number]))):
        collected.filter.look_up(source.prefix + records.key(place) for number in group for place in images[number])
        for number in group:
            picked = _pick(
                _usable_records(records, images[number], source.prefix, collected), span, unit, collected, fit
            )
            if data.source.reads_in_place:
                # Every sample names its file, and needs no tar.
                collected.add(FIRST, index_pictures(picked), data.num_classes)
                continue
            path = unit.folder / tar_file(number)
            with atomic.replacing(path, durable=False) as staged:
                count = write_tar(staged, picked, data.image_size, data.channels, transform)
            index = index_tar(path)
            require(len(index.keys) == count, f"{path}: {count} images written, others found")
            collected.tars.append(SampleFile(f"{unit.key}/{path.name}", path.stat().st_size))
            collected.add(number, index, data.num_classes)
    written = [] if data.source.reads_in_place else [tar_file(number) for number in tars]
    return collected.result(unit, source_names, written, _listing(records))


def _listing(records: Split) -> str:
    """Hash number and keys of a split's records: every unit lists them for itself, and takes its part of them."""
    # Of a source of one's own, a key may need the picture.
    keys = map(records.key, range(len(records))) if type(records).key is not Split.key else ()
    return digest([len(records), *keys])


def _pick(
    numbered: Iterable[tuple[int, Record]],
    span: range,
    unit: Unit,
    collected: _CollectedSamples,
    fit: Callable[[Image.Image], Image.Image],
) -> Iterator[Record]:
    """Yield the records of one tar that the filter keeps, as networks see them.

    span: the numbers of all records of the unit; fit: makes a square of a picture, or raises `ImageError`.
    """
    for block in _grouped(numbered, _memory_share):
        advance(unit, block[-1][0] + 1 - span.start, len(span))
        own = [record for _, record in block]
        values: dict[str, Sequence[object]] = {
            "label": [record.label for record in own],
            "caption": [record.caption for record in own],
            "width": [record.image.width for record in own],
            "height": [record.image.height for record in own],
        }
        for record in compress(own, collected.filter.mask([record.key for record in own], values)):
            try:
                yield replace(record, image=fit(record.image))
            except ImageError as error:
                collected.broken.append({"tar": "", "key": record.key, "reason": str(error)})


def _usable_records(
    records: Split, images: range, prefix: str, collected: _CollectedSamples
) -> Iterator[tuple[int, Record]]:
    """Yield the usable records with their numbers; prefix: the beginning of their keys."""
    for number in images:
        try:
            record = records[number]
            yield number, replace(record, key=prefix + record.key)
        except ImageError as error:
            collected.broken.append({"tar": "", "key": prefix + records.key(number), "reason": str(error)})


def _memory_share(numbered: tuple[int, Record]) -> float:
    """Return the share of the memory for waiting records that one takes."""
    return 1 / IMAGES_AT_ONCE + math.prod(numbered[1].image.size) / PIXELS_AT_ONCE


def _grouped(items: Iterable[T], share: Callable[[T], float]) -> Iterator[list[T]]:
    """Yield consecutive items in groups that end where their shares add up to 1."""
    group: list[T] = []
    total = 0.0
    for item in items:
        group.append(item)
        total += share(item)
        if total >= 1:
            yield group
            group, total = [], 0.0
    if group:
        yield group


def _use_in_place(
    experiment: Experiment, unit: Unit, source: InPlaceSource[SourceSettings], collected: _CollectedSamples
) -> Result:
    """Find the samples of this unit's split in its files, which stay where they are."""
    data, tars, numbers = experiment.data, source.tars(split_of(unit.key)), tars_of(experiment, unit.key)
    require(
        data.content_hash is None or source.content_hash() == data.content_hash,
        "data.source: its files have changed since the run was submitted; bring them back, or submit with --redo shard",
    )
    if FIRST in numbers and split_of(unit.key) == TRAIN:
        collected.pass_over(source.unused_files())
    transform = variants.create(Transform, data.transform)

    def check(content: bytes) -> tuple[int, int]:
        unit.stop_if_requested()
        picture = read_image(content)
        # A picture that cannot be converted would stop a training.
        fit_to_shape(picture, data.channels, data.image_size, transform)
        return picture.size

    def indexed(number: int) -> IndexedFile:
        unit.heartbeat.beat(number - numbers.start, len(numbers))
        tar = tars[number]
        path, told = tar.path, _told(tar)
        sha256 = atomic.sha256(path) if tar.has_digest else None
        collected.tars.append(tar.entry(sha256))
        adopted = tar.index(check, collected.filter.column_names)
        collected.broken += [{"tar": told, "key": key, "reason": reason} for key, reason in adopted.broken]
        collected.pass_over(adopted.passed_over, told)
        return adopted

    numbered = ((number, indexed(number)) for number in numbers)
    for group in _grouped(numbered, lambda pair: collected.look_up_at_once(len(pair[1].index.keys))):
        adopted_tars = [adopted for _, adopted in group]
        keys = [key for adopted in adopted_tars for key in adopted.index.keys]
        values = values_of(adopted_tars, collected.filter.column_names)
        collected.filter.look_up(keys)
        kept = iter(collected.filter.mask(keys, values).tolist())
        for number, adopted in group:
            index = adopted.index.select(list(islice(kept, len(adopted.index.keys))))
            collected.adopt(number, index, data.num_classes, _told(tars[number]))
    return collected.result(unit, source.class_names(), [], None)


def _told(tar: SourceFile) -> str:
    """Return the name of a tar, which begins with its collection's."""
    return "/".join(filter(None, (tar.collection, tar.name)))


def _check_classes(num_classes: int, index: TarIndex) -> None:
    """Raise `UserError` where the images lack a class, or have one that the experiment has not."""
    if index.labels is None:
        raise UserError(f"data.num_classes: {num_classes}, but the images of data.source have no classes")
    largest = index.labels.max()
    require(largest < num_classes, f"data.num_classes: {num_classes}, but data.source has class {largest}")
