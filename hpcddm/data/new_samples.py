"""Samples of a source that no run has: read one after the other, without a catalog, and seen as those of a run are."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from hpcddm.config import variants
from hpcddm.config.data import DataSettings
from hpcddm.data.adopted import SourceTar, index_adopted, open_tar
from hpcddm.data.pictures import PictureError, read_picture, shaped
from hpcddm.data.sources.base import SPLITS, Source, Split, TarSource
from hpcddm.data.transforms.base import Transform
from hpcddm.errors import EmptySplit
from hpcddm.runs.passed_over import Counts, Item, add


class NewSample(NamedTuple):
    """A sample with its picture as networks see it, and its class and caption where it has them."""

    key: str
    image: UInt8[np.ndarray, "h w c"]
    label: int | None
    caption: str | None


@dataclass
class NewSamples:
    """Reader of all samples of a source, of both splits; data: the source, and the form in which pictures are seen.

    broken: keys and reasons of those that could not be used, passed_over: what became none, as far as they were read.
    """

    data: DataSettings
    broken: list[tuple[str, str]] = field(default_factory=list)
    passed_over: Counts = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._source = variants.create(Source, self.data.source)
        self._transform = variants.create(Transform, self.data.transform)
        self._splits = _opened(self._source)

    def count(self) -> int:
        """Count the samples, of tars by an estimate."""
        return sum(map(len, self._splits.values()))

    def __iter__(self) -> Iterator[NewSample]:
        """Read sample after sample, training samples first; raises `UserError` naming a file that cannot be read."""
        for name, split in self._splits.items():
            if isinstance(self._source, TarSource):
                self._pass_over(self._source.beside() if name == next(iter(self._splits)) else [])
                for tar in self._source.tars(name):
                    yield from self._of_tar(tar)
            else:
                yield from self._of_records(split)

    def _pass_over(self, items: Iterable[Item]) -> None:
        for item in items:
            add(self.passed_over, [item])
            if item.is_broken:
                self.broken.append((item.name, item.reason))

    def _of_records(self, records: Split) -> Iterator[NewSample]:
        self._pass_over(records.passed_over)
        for number in range(len(records)):
            try:
                record = records[number]
                yield NewSample(
                    self._source.prefix + record.key, self._seen(record.image), record.label, record.caption
                )
            except PictureError as error:
                self.broken.append((self._source.prefix + records.key(number), str(error)))

    def _of_tar(self, tar: SourceTar) -> Iterator[NewSample]:
        adopted = index_adopted(tar.path, tar.layout, tar.prefix, is_wanted=tar.is_of_split)
        self.broken += adopted.broken
        self._pass_over(adopted.passed_over)
        index = adopted.index
        labels: Iterable[int | None] = _or_none(None if index.labels is None else index.labels.tolist(), index.keys)
        rows = zip(index.keys, index.offsets.tolist(), index.sizes.tolist(), labels, strict=True)
        captions = _or_none(index.captions, index.keys)
        with open_tar(tar.path) as file:
            for (key, offset, size, label), caption in zip(rows, captions, strict=True):
                try:
                    picture = read_picture(os.pread(file.fileno(), size, offset))
                    yield NewSample(key, self._seen(picture), label, caption)
                except PictureError as error:
                    self.broken.append((key, str(error)))

    def _seen(self, picture: Image.Image) -> UInt8[np.ndarray, "h w c"]:
        pixels = np.asarray(shaped(picture, self.data.channels, self.data.image_size, self._transform))
        return pixels if pixels.ndim == 3 else pixels[..., None]


def _opened(source: Source) -> dict[str, Split]:
    """Open the splits; one may be without a sample, such as that of a share of few images."""
    splits: dict[str, Split] = {}
    errors: list[EmptySplit] = []
    for name in SPLITS:
        try:
            splits[name] = source.open_split(name)
        except EmptySplit as error:
            errors.append(error)
    if not splits:
        raise errors[0]
    return splits


def _or_none(values: Sequence | None, keys: Sequence[str]) -> Sequence:
    return [None] * len(keys) if values is None else values
