"""Several collections of tars as one, each with its own folder, layout and held-out samples.

In an experiment `data.source` is the list of them. Classes are numbers without names, and mean the same in all.
"""

from pathlib import Path
from typing import ClassVar

from hpcddm.config import variants
from hpcddm.config.sources import SeveralSettings
from hpcddm.data.adopted import SourceTar
from hpcddm.data.sources.base import TarSource
from hpcddm.data.sources.several import Several, SeveralSplit
from hpcddm.errors import UserError
from hpcddm.runs.passed_over import Item


class Settings(SeveralSettings):
    """The collections; all of them adopt tars."""

    adopts_tars: ClassVar[bool] = True


class TarCollections(Several[Settings], TarSource[Settings]):
    """Sources of tars: those of one are numbered behind those of another."""

    def open_split(self, split: str) -> SeveralSplit:
        opened = super().open_split(split)
        _check_alike("classes", "label", {prefix: own.has_labels for prefix, own in opened.splits.items()})
        _check_alike("captions", "caption", {prefix: own.has_captions for prefix, own in opened.splits.items()})
        return opened

    def tars(self, split: str) -> list[SourceTar]:
        return [tar for own in self.settings.of for tar in variants.create(TarSource, own).tars(split)]

    def beside(self) -> list[Item]:
        sources = [variants.create(TarSource, own) for own in self.settings.of]
        return [item._replace(name=f"{own.prefix}{item.name}") for own in sources for item in own.beside()]

    def folders(self) -> dict[str | None, Path]:
        sources = (variants.create(TarSource, own) for own in self.settings.of)
        return {name: folder for source in sources for name, folder in source.folders().items()}


def _check_alike(what: str, key: str, has: dict[str, bool]) -> None:
    """Raise `UserError` where some collections have something, of which a column is made, and others have not."""
    if len(set(has.values())) > 1:
        first, other = (next(name for name in has if has[name] is value).rstrip("/") for value in (True, False))
        raise UserError(f"data.source: {first} has {what} and {other} none; say {key}: null for {first}")
