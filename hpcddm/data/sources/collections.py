"""Several collections as one: what is training image or held out in each is so in all.

In an experiment `data.source` is the list of them. The classes of all are those of each by their names, in alphabetical
order; where one has no classes, or no names for them, all together have none, and likewise with captions.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
from jaxtyping import Int64
from pydantic import Field

from hpcddm import plugins
from hpcddm.data.sources.base import Record, Source, Split
from hpcddm.data.sources.settings import SourceSettings


class Settings(SourceSettings):
    """The collections, each a source with a name of its own as `collection`."""

    of: list[SourceSettings] = Field(min_length=1)

    def check(self, experiment: object) -> None:
        names = [source.collection for source in self.of]
        if None in names or len(set(names)) < len(names):
            raise ValueError("every collection needs a name of its own, as its key 'collection'")
        adopted = [source.collection for source in self.of if source.adopts_tars]
        if adopted:
            raise ValueError(f"{adopted[0]}: tars are adopted as the only source, not among several")
        nested = [source.collection for source in self.of if isinstance(source, Settings)]
        if nested:
            raise ValueError(f"{nested[0]}: a list within a list; name its sources in one")


class CollectionsSplit(Split):
    """The records of one split of every collection, one collection behind the other."""

    def __init__(self, sources: Sequence[Source[SourceSettings]], split: str) -> None:
        self._splits = [source.open_split(split) for source in sources]
        self._prefixes = [source.prefix for source in sources]
        self._ends = list(accumulate(map(len, self._splits)))
        self.has_captions = all(own.has_captions for own in self._splits)
        # Numbers without names may mean anything in another collection.
        has_classes = all(own.class_names for own in self._splits)
        self.class_names = sorted({name for own in self._splits for name in own.class_names}) if has_classes else []
        self.labels = np.concatenate([self._labels(own) for own in self._splits]) if has_classes else None

    def _labels(self, own: Split) -> Int64[np.ndarray, " n"]:
        """Number the classes of one collection's records as those of all."""
        numbers = np.array([self.class_names.index(name) for name in own.class_names], np.int64)
        return numbers[own.labels]

    def __len__(self) -> int:
        return self._ends[-1]

    def _place(self, number: int) -> tuple[int, int]:
        """Return the number of a record's collection, and that of the record in it."""
        place = bisect_right(self._ends, number)
        return place, number - (self._ends[place - 1] if place else 0)

    def key(self, number: int) -> str:
        place, own = self._place(number)
        return self._prefixes[place] + self._splits[place].key(own)

    def __getitem__(self, number: int) -> Record:
        place, own = self._place(number)
        record = self._splits[place][own]
        return replace(
            record,
            key=self._prefixes[place] + record.key,
            label=None if self.labels is None else int(self.labels[number]),
            caption=record.caption if self.has_captions else None,
        )


class Collections(Source[Settings]):
    """Sources of records, opened together."""

    def open_split(self, split: str) -> CollectionsSplit:
        return CollectionsSplit(self._sources(), split)

    def content(self) -> str:
        """Hash what each source hashes."""
        hashes = [(source.settings.collection, source.content()) for source in self._sources()]
        return hashlib.sha256(repr(hashes).encode()).hexdigest()

    def _sources(self) -> list[Source[SourceSettings]]:
        return [plugins.create(Source, settings) for settings in self.settings.of]
