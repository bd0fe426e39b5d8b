"""Several collections of tars as one, each with its own folder, layout and held-out samples.

In an experiment `data.source` is the list of them. Classes are numbers, and mean the same in all; they have names where
all agree on them.
"""

from collections.abc import Sequence
from typing import ClassVar

from hpcddm.config import variants
from hpcddm.config.sources import CombinedSettings
from hpcddm.errors import UserError
from hpcddm.runs.passed_over import PassedOverItem
from hpcddm.sources.base import InPlaceSource
from hpcddm.sources.combined import CombinedSource, CombinedSplit
from hpcddm.sources.source_files import SourceFile


class TarCollectionsSettings(CombinedSettings):
    """The collections; all of them adopt tars."""

    uses_existing_tars: ClassVar[bool] = True


class TarCollections(CombinedSource[TarCollectionsSettings], InPlaceSource[TarCollectionsSettings]):
    """Sources of tars: those of one are numbered behind those of another."""

    def open_split(self, split: str) -> CombinedSplit:
        opened = super().open_split(split)
        _check_names(opened)
        _check_alike("classes", "label", {prefix: own.has_labels for prefix, own in opened.splits.items()})
        _check_alike("captions", "caption", {prefix: own.has_captions for prefix, own in opened.splits.items()})
        return opened

    def tars(self, split: str) -> Sequence[SourceFile]:
        return [tar for own in self.settings.sources for tar in variants.create(InPlaceSource, own).tars(split)]

    def class_names(self) -> list[str]:
        """Return the names on which all collections agree; empty where they do not."""
        first, *others = [variants.create(InPlaceSource, own).class_names() for own in self.settings.sources]
        return first if all(names == first for names in others) else []

    def unused_files(self) -> list[PassedOverItem]:
        sources = [variants.create(InPlaceSource, own) for own in self.settings.sources]
        return [item._replace(name=f"{own.prefix}{item.name}") for own in sources for item in own.unused_files()]


def _check_names(opened: CombinedSplit) -> None:
    """Raise `UserError` for two collections that give one number to classes of different names."""
    named = {prefix.rstrip("/"): own.class_names for prefix, own in opened.splits.items() if own.has_labels}
    first: dict[int, tuple[str, str]] = {}
    for collection, names in named.items():
        for number, name in enumerate(names):
            other, its_name = first.setdefault(number, (collection, name))
            if its_name != name:
                both = f"class {number} is '{its_name}' in {other} and '{name}' in {collection}"
                raise UserError(f"data.source: {both}; set label: null for one of them, or renumber its classes")


def _check_alike(what: str, key: str, has: dict[str, bool]) -> None:
    """Raise `UserError` if only some collections have a value from which a column is made."""
    if len(set(has.values())) > 1:
        first, other = (next(name for name in has if has[name] is value).rstrip("/") for value in (True, False))
        raise UserError(f"data.source: {first} has {what} and {other} none; set {key}: null for {first}")
