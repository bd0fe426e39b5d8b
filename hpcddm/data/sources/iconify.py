"""Icon sets in Iconify JSON, such as `icons.json` of the npm packages `@iconify-json/*`, drawn on white.

An icon's key is its full name, such as noto:red-apple. Hidden icons are left out, and so are aliases that give a
picture another name only; those that turn or flip it are pictures of their own.
"""

import hashlib
from fnmatch import fnmatchcase
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from hpcddm.data.record import Record
from hpcddm.data.sources import icon_sets
from hpcddm.data.sources.base import Source, Split
from hpcddm.data.sources.icon_sets import Icon, IconSet
from hpcddm.data.sources.settings import HeldoutShare, SourceSettings
from hpcddm.data.sources.shares import is_heldout
from hpcddm.errors import UserError, require
from hpcddm.rundir import atomic
from hpcddm.schema import PathSetting, Positive

WORDS = ("name", "set", "category")


class Settings(SourceSettings):
    """Files of sets, and what becomes of an icon."""

    files: Annotated[list[PathSetting], Field(min_length=1)]
    heldout: HeldoutShare
    size: Positive = 128
    """Side in pixels of the drawing, which is then shrunk to `data.image_size` where that is less."""
    caption: str = "{name}"
    """Caption, in which {name}, {set} and {category} stand for the icon's, with blanks for hyphens."""
    classes: Literal["category", "set"] | None = None
    """What classes are; without it there are none."""
    skip: list[str] = []
    """Patterns of names, such as '*skin-tone*', whose icons are left out."""

    @field_validator("caption")
    @classmethod
    def _has_known_words(cls, caption: str) -> str:
        for _, word, form, conversion in Formatter().parse(caption):
            if word is not None and (word not in WORDS or form or conversion):
                raise ValueError("takes {name}, {set} and {category}")
        return caption

    def check(self, experiment: Any) -> None:
        """Refuse drawings that would be enlarged."""
        if self.size < experiment.data.image_size:
            raise ValueError(f"data.source.size: {self.size} is less than data.image_size {experiment.data.image_size}")


class IconSplit(Split):
    """Icons of one split, in the order of files and names."""

    has_captions = True

    def __init__(self, settings: Settings, split: str) -> None:
        _check_package()
        self.settings = settings
        icons = [(icons, icon) for icons in _sets(settings) for icon in icons.icons if not _is_skipped(icon, settings)]
        self.class_names = sorted({_class(*icon, settings.classes) for icon in icons} if settings.classes else ())
        wanted, share = split == "heldout", settings.heldout.share
        self.icons = [icon for icon in icons if is_heldout(_key(*icon), share) == wanted]
        if not self.icons:
            raise UserError(f"data.source: {len(icons)} icons, none of them for {split}; change heldout.share or skip")
        self.captions = [_caption(*icon, settings.caption) for icon in self.icons]
        self.labels = None
        if settings.classes:
            numbers = {name: number for number, name in enumerate(self.class_names)}
            self.labels = np.array([numbers[_class(*icon, settings.classes)] for icon in self.icons], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.icons)

    def key(self, number: int) -> str:
        return _key(*self.icons[number])

    def __getitem__(self, number: int) -> Record:
        icons, icon = self.icons[number]
        try:
            image = icon.render(self.settings.size)
        except (ValueError, UserError) as error:
            raise UserError(f"{icons.file}: icon {icon.name} cannot be drawn ({error}); name it in skip") from None
        label = None if self.labels is None else int(self.labels[number])
        return Record(self.key(number), image, label, self.captions[number])


class Iconify(Source[Settings]):
    """Icons are drawn when they are accessed."""

    def open_split(self, split: str) -> IconSplit:
        return IconSplit(self.settings, split)

    def content(self) -> str:
        """Hash the files, and those of the categories."""
        files = [Path(file) for file in self.settings.files]
        beside = [file.with_name(icon_sets.METADATA) for file in files]
        there = [*map(_file, files), *(file for file in beside if file.is_file())]
        return hashlib.sha256("".join(map(atomic.sha256, there)).encode()).hexdigest()


def _check_package() -> None:
    try:
        import resvg_py  # noqa: F401
    except ImportError:
        raise UserError(
            "data.source iconify: needs the package resvg-py; install it with: pip install 'hpcddm[collections]'"
        ) from None


def _sets(settings: Settings) -> list[IconSet]:
    sets: dict[str, IconSet] = {}
    for file in settings.files:
        icons = icon_sets.read(_file(Path(file)))
        other = sets.setdefault(icons.prefix, icons)
        require(other is icons, f"{other.file} and {icons.file} are both the set {icons.prefix}; remove one of them")
    return list(sets.values())


def _file(path: Path) -> Path:
    require(path.is_file(), f"data.source.files: {path} is no file; of a package it is icons.json")
    return path


def _is_skipped(icon: Icon, settings: Settings) -> bool:
    return any(fnmatchcase(icon.name, pattern) for pattern in settings.skip)


def _key(icons: IconSet, icon: Icon) -> str:
    return f"{icons.prefix}:{icon.name}"


def _class(icons: IconSet, icon: Icon, classes: str | None) -> str:
    return icons.prefix if classes == "set" else _category(icons, icon, "classes")


def _category(icons: IconSet, icon: Icon, key: str) -> str:
    if icon.category is None:
        raise UserError(f"{icons.file}: icon {icon.name} has no category, which data.source.{key} names; skip it")
    return icon.category


def _caption(icons: IconSet, icon: Icon, template: str) -> str:
    words = {"name": icon.name.replace("-", " "), "set": icons.prefix.replace("-", " ")}
    if any(word == "category" for _, word, _, _ in Formatter().parse(template)):
        words["category"] = _category(icons, icon, "caption")
    return template.format(**words)
