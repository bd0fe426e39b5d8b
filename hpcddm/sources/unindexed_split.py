"""Samples of existing tars before all of them are indexed: what a submission can know in seconds."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from hpcddm.data import image_decoding
from hpcddm.data.image_decoding import ImageError
from hpcddm.data.open_files import open_file
from hpcddm.data.tars.record import Record
from hpcddm.errors import UserError
from hpcddm.runs import passed_over
from hpcddm.runs.passed_over import PassedOverItem
from hpcddm.sources.base import KNOWN, Split
from hpcddm.sources.source_files import IndexedFile, SourceFile, valued

MAX_TARS_READ = 10
"""Tars opened to find a sample; before all tars are read, the first one with a sample represents them all."""


class UnindexedSplit(Split):
    """Samples of one split as far as they are known before all tars are read: those of the first tar that has any.

    share: the split's share of the samples in the tars; beside: files next to the tars. The items passed over in the
    tars are those of the first training tars.
    """

    is_exact = False
    labels = None

    def __init__(self, tars: Sequence[SourceFile], share: float, beside: Sequence[PassedOverItem]) -> None:
        self.class_names = []
        self._tars, self._share, self.tar_count = tars, share, len(tars)
        self._first, first, items = _first_with_samples(tars)
        self.passed_over = [*beside, *items]
        self._index, self.known = first.index, KNOWN | first.entries

    @cached_property
    def has_captions(self) -> bool:  # type: ignore[override]
        return self._have("caption")

    @cached_property
    def has_labels(self) -> bool:
        return self._have("label")

    def _have(self, name: str) -> bool:
        """Tell if samples have a value: those of the first tar or, where these lack it, of some from all parts."""
        spread = self._tars[:: -(-len(self._tars) // MAX_TARS_READ)]
        return name in valued(self._index) or any(name in valued(_index_all(tar).index) for tar in spread)

    def __len__(self) -> int:
        """Estimate the number of samples: as many in proportion to the bytes as in that tar."""
        size = sum(tar.path.stat().st_size for tar in self._tars)
        return max(round(len(self._index.keys) * self._share * size / self._index.path.stat().st_size), 1)

    def keys(self, prefix: str, tars: int) -> list[str]:
        """List the keys in the first tar with samples, or in more from all parts of the collection.

        The tars have the prefix.
        """
        indices = {self._first: self._index}
        if tars > 1:
            spread = self._tars[:: -(-len(self._tars) // tars)]
            indices = {tar: _index_all(tar).index for tar in spread}
        keys = (f"{tar.prefix}{key}" for tar, index in indices.items() for key in index.keys)
        return [key for key in keys if self._first.is_of_split(key)]

    def __getitem__(self, number: int) -> Record:
        """Read a sample of that tar."""
        row = number % len(self._index.keys)
        file = open_file(self._index.path, self._first.entry())
        content = file.content(int(self._index.offsets[row]), int(self._index.sizes[row]))
        try:
            return Record(self._index.keys[row], image_decoding.read_image(content))
        except ImageError as error:
            raise ImageError(f"{self._index.path}: {self._index.keys[row]}: {error}") from None


def _index_all(tar: SourceFile) -> IndexedFile:
    """Index the samples of both splits, without the collection's prefix and without a look at the images."""
    return replace(tar, prefix="", is_of_split=lambda key: True).index()


def _first_with_samples(tars: Sequence[SourceFile]) -> tuple[SourceFile, IndexedFile, list[PassedOverItem]]:
    """Index the first of the tars that has a sample, and list what is passed over up to its end.

    Raises `UserError` where the first `MAX_TARS_READ` have none.
    """
    broken: list[tuple[str, str]] = []
    items: list[PassedOverItem] = []
    tried = tars[:MAX_TARS_READ]
    for tar in tried:
        adopted = _index_all(tar)
        items += [item._replace(name=f"{tar.path.name}: {item.name}") for item in adopted.passed_over]
        if adopted.index.keys:
            return tar, adopted, items
        broken += adopted.broken
    reason = ": ".join(broken[0]) if broken else passed_over.describe_counts(passed_over.count_items(items))
    behind = "tar" if len(tried) == 2 else f"{len(tried) - 1} tars"
    more = f", nor in the {behind} behind it" * (len(tried) > 1)
    raise UserError(f"{tars[0].path}: no samples with an image{more}; {reason or 'no members'}")
