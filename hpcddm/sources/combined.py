"""Base of lists of collections: the samples of one stand behind those of another, with its name."""

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from hpcddm.config import class_names, variants
from hpcddm.config.sources import CombinedSettings, SourceSettings
from hpcddm.data.tars.record import Record
from hpcddm.errors import UserError, call_all
from hpcddm.sources.base import Source, Split

S = TypeVar("S", bound=CombinedSettings)


class CombinedSplit(Split):
    """The records of one split of every collection, one collection behind the other."""

    def __init__(self, sources: Sequence[Source[SourceSettings]], split: str) -> None:
        opened = call_all([partial(source.open_split, split) for source in sources])
        self.splits = dict(zip((source.prefix for source in sources), opened, strict=True))
        own_splits = list(self.splits.values())
        self._ends = list(accumulate(map(len, own_splits)))
        self.has_captions = all(own.has_captions for own in own_splits)
        self.is_exact = all(own.is_exact for own in own_splits)
        self.known = frozenset.intersection(*(own.known for own in own_splits))
        self.passed_over = [
            item._replace(name=f"{prefix}{item.name}")
            for prefix, own in self.splits.items()
            for item in own.passed_over
        ]
        self.tar_count = max(own.tar_count for own in own_splits)
        _check_class_names(self.splits)
        # Numbers without names may mean anything in another collection.
        has_classes = all(own.class_names and own.labels is not None for own in own_splits)
        self.class_names = sorted({name for own in own_splits for name in own.class_names}) if has_classes else []
        self.labels = np.concatenate([self._labels(own) for own in own_splits]) if has_classes else None

    @property
    def has_labels(self) -> bool:
        # Of tars the classes are numbers, which the catalog knows.
        return self.labels is not None or (not self.is_exact and all(own.has_labels for own in self.splits.values()))

    def rename_classes(self, names: list[str]) -> None:
        before = self.class_names
        super().rename_classes(names)
        for own in self.splits.values():
            own.rename_classes([names[before.index(name)] for name in own.class_names])

    def _labels(self, own: Split) -> Int64[np.ndarray, " n"]:
        """Number the classes of one collection's records as those of all."""
        numbers = np.array([self.class_names.index(name) for name in own.class_names], np.int64)
        return numbers[own.labels]

    def __len__(self) -> int:
        return self._ends[-1]

    def _place(self, number: int) -> tuple[str, Split, int]:
        """Return prefix and split of a record's collection, and the record's number in it."""
        place = bisect_right(self._ends, number)
        prefix, own = list(self.splits.items())[place]
        return prefix, own, number - (self._ends[place - 1] if place else 0)

    def key(self, number: int) -> str:
        prefix, own, place = self._place(number)
        return prefix + own.key(place)

    def keys(self, prefix: str, tars: int) -> list[str]:
        return [key for own_prefix, own in self.splits.items() for key in own.keys(prefix + own_prefix, tars)]

    def __getitem__(self, number: int) -> Record:
        prefix, own, place = self._place(number)
        record = own[place]
        return replace(
            record,
            key=prefix + record.key,
            label=None if self.labels is None else int(self.labels[number]),
            caption=record.caption if self.has_captions else None,
        )


def _check_class_names(splits: Mapping[str, Split]) -> None:
    """Raise `UserError` for a collection that calls two classes by one name, by which its classes are joined."""
    for prefix, own in splits.items():
        try:
            class_names.require_distinct([] if own.labels is None else own.class_names)
        except ValueError as error:
            raise UserError(f"data.source: {prefix.rstrip('/')}: {error}") from None


class CombinedSource(Source[S]):
    """Sources, opened together."""

    def open_split(self, split: str) -> CombinedSplit:
        return CombinedSplit([variants.create(Source, settings) for settings in self.settings.sources], split)

    def content_hash(self) -> str:
        """Hash what each source hashes."""
        hashes = [(own.collection, variants.create(Source, own).content_hash()) for own in self.settings.sources]
        return hashlib.sha256(repr(hashes).encode()).hexdigest()
