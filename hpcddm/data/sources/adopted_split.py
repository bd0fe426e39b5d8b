"""Samples of adopted tars before all of them are indexed: what a submission can know in seconds."""

import os
from collections.abc import Sequence

from hpcddm.data import pictures
from hpcddm.data.adopted import AdoptedTar, SourceTar, index_adopted
from hpcddm.data.pictures import PictureError
from hpcddm.data.record import Record
from hpcddm.data.sources.base import KNOWN, Split
from hpcddm.errors import UserError
from hpcddm.runs import passed_over
from hpcddm.runs.passed_over import Item

TARS_TRIED = 10
"""Tars of which the first with a sample stands for all, before they are read; others may be empty."""


class AdoptedSplit(Split):
    """Samples of one split as far as they can be known before all tars are read: those of the first that has any.

    share: of the samples in the tars that are of the split; beside: what lies beside the tars. What is passed over in
    the tars is that of the training samples' first ones.
    """

    is_exact = False
    labels = None

    def __init__(self, tars: Sequence[SourceTar], share: float, beside: Sequence[Item]) -> None:
        self.class_names = []
        self._tars, self._share, self.tar_count = tars, share, len(tars)
        self._first, first, items = _first_with_samples(tars)
        self.passed_over = [*beside, *items]
        self._index, self.known = first.index, KNOWN | first.entries
        self.has_captions = first.index.captions is not None

    @property
    def has_labels(self) -> bool:
        return self._index.labels is not None

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
            indices = {tar: index_adopted(tar.path, tar.layout).index for tar in spread}
        keys = (f"{tar.prefix}{key}" for tar, index in indices.items() for key in index.keys)
        return [key for key in keys if self._first.is_of_split(key)]

    def __getitem__(self, number: int) -> Record:
        """Read a sample of that tar."""
        row = number % len(self._index.keys)
        with open(self._index.path, "rb") as file:
            content = os.pread(file.fileno(), int(self._index.sizes[row]), int(self._index.offsets[row]))
        try:
            return Record(self._index.keys[row], pictures.read_picture(content))
        except PictureError as error:
            raise PictureError(f"{self._index.path}: {self._index.keys[row]}: {error}") from None


def _first_with_samples(tars: Sequence[SourceTar]) -> tuple[SourceTar, AdoptedTar, list[Item]]:
    """Index the first of the tars that has a sample, and list what is passed over up to its end.

    Raises `UserError` where the first `TARS_TRIED` have none.
    """
    broken: list[tuple[str, str]] = []
    items: list[Item] = []
    tried = tars[:TARS_TRIED]
    for tar in tried:
        adopted = index_adopted(tar.path, tar.layout)
        items += [item._replace(name=f"{tar.path.name}: {item.name}") for item in adopted.passed_over]
        if adopted.index.keys:
            return tar, adopted, items
        broken += adopted.broken
    reason = ": ".join(broken[0]) if broken else passed_over.described(passed_over.counted(items))
    behind = "tar" if len(tried) == 2 else f"{len(tried) - 1} tars"
    more = f", nor in the {behind} behind it" * (len(tried) > 1)
    raise UserError(f"{tars[0].path}: no samples with an image{more}; {reason or 'no members'}")
