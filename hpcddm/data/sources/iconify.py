"""Icon sets in Iconify JSON, such as `icons.json` of the npm packages `@iconify-json/*`, drawn on white.

An icon's key is its full name, such as noto:red-apple. Hidden icons are left out, and so are aliases that give a
picture another name only; those that turn or flip it are pictures of their own. Of emoji, the tables of emojibase-data
know Unicode's name, keywords and group (`emoji_names`).
"""

import hashlib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import compress
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from hpcddm.data.record import Record
from hpcddm.data.sources import emoji_names, icon_sets
from hpcddm.data.sources.base import Source, Split
from hpcddm.data.sources.emoji_names import Emoji, EmojiNames
from hpcddm.data.sources.icon_sets import Icon, IconSet
from hpcddm.data.sources.settings import HELDOUT_SHARE, HeldoutIcons, SourceSettings
from hpcddm.data.sources.shares import is_heldout
from hpcddm.errors import UserError, require
from hpcddm.next_step import installing
from hpcddm.pipeline.passed_over import Item
from hpcddm.rundir import atomic
from hpcddm.schema import PathSetting, Positive

WORDS = ("name", "set", "category")
EMOJI_WORDS = ("label", "tags", "group")
"""Words that a caption takes from the tables of emojibase-data."""


class Settings(SourceSettings):
    """Files of sets, and what becomes of an icon."""

    files: Annotated[list[PathSetting], Field(min_length=1)]
    heldout: HeldoutIcons = HeldoutIcons(share=HELDOUT_SHARE)
    emojibase: PathSetting | None = None
    """Folder with `data.json` and `messages.json` of emojibase-data, in any language."""
    size: Positive = 128
    """Side in pixels of the drawing, which is then shrunk to `data.image_size` where that is less."""
    caption: str = "{name}"
    """Caption, in which {name}, {set} and {category} stand for the icon's, with blanks for hyphens.

    With `emojibase` also {label}, {tags} and {group}: Unicode's name, the keywords that it does not say already, and
    the group. An icon that is no emoji of Unicode's has its name as label, and no tags.
    """
    classes: Literal["category", "set", "group"] | None = None
    """What classes are; without it there are none."""
    skip: list[str] = []
    """Patterns of names, such as '*skin-tone*', whose icons are left out; Unicode's names are tried, too."""

    @field_validator("caption")
    @classmethod
    def _has_known_words(cls, caption: str) -> str:
        valid = WORDS + EMOJI_WORDS
        for _, word, form, conversion in Formatter().parse(caption):
            if word is not None and (word not in valid or form or conversion):
                raise ValueError(f"takes {', '.join(f'{{{name}}}' for name in valid)}")
        return caption

    def check(self, experiment: Any) -> None:
        """Refuse drawings that would be enlarged, and what needs the tables of emojibase-data without them."""
        if self.size < experiment.data.image_size:
            raise ValueError(f"data.source.size: {self.size} is less than data.image_size {experiment.data.image_size}")
        words = {word for _, word, _, _ in Formatter().parse(self.caption)} | {self.classes}
        needy = [word for word in EMOJI_WORDS if word in words]
        if needy and self.emojibase is None:
            raise ValueError(f"data.source.emojibase: this key is needed: caption or classes name {needy[0]}")


@dataclass(frozen=True)
class Drawing:
    """One icon of a set; emoji: which one it is, None where that is not known."""

    icons: IconSet
    icon: Icon
    emoji: Emoji | None = None
    group: str | None = None

    @property
    def key(self) -> str:
        """Full name, the key of the sample."""
        return f"{self.icons.prefix}:{self.icon.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names to which patterns are compared: its own, and Unicode's."""
        return (self.icon.name, *((emoji_names.as_icon_name(self.emoji.label),) if self.emoji else ()))

    @property
    def concept(self) -> str:
        """Name that drawings of the same thing have in common, whatever their sets call it, and in any skin tone."""
        return emoji_names.as_icon_name(self.emoji.concept) if self.emoji else self.icon.name

    def value(self, word: str, key: str) -> str:
        """Return what stands for a word of a caption, or names a class; key: the setting that asks for it.

        Raises `UserError` where the icon has no such thing.
        """
        plain = self.icon.name.replace("-", " ")
        values = {
            "name": plain,
            "set": self.icons.prefix.replace("-", " "),
            "category": self.icon.category,
            "label": self.emoji.label if self.emoji else plain,
            "tags": ", ".join(emoji_names.new_tags(self.emoji)) if self.emoji else "",
            "group": self.group,
        }
        value = values[word]
        if value is None:
            place = f"{self.icons.file}: icon {self.icon.name}"
            raise UserError(f"{place} has no {word}, which data.source.{key} names; skip it")
        return value

    def caption(self, template: str) -> str:
        """Fill in a template; a comma that would end the text, as there are no tags, is left out."""
        words = [word for _, word, _, _ in Formatter().parse(template) if word]
        values = {word: self.value(word, "caption") for word in words}
        text = template.format(**values)
        return text if all(values.values()) else text.rstrip(" ,")


class IconSplit(Split):
    """Icons of one split, in the order of files and names."""

    has_captions = True

    def __init__(self, settings: Settings, split: str) -> None:
        _check_package()
        self.settings = settings
        sets = _sets(settings)
        drawings, skipped = _drawings(settings, sets)
        if split == "train":
            self.passed_over = [*(item for icons in sets for item in icons.passed_over), *skipped]
        classes = [_class(drawing, settings.classes) for drawing in drawings] if settings.classes else []
        self.class_names = sorted(set(classes))
        wanted, heldout = split == "heldout", settings.heldout
        by = {"key": lambda drawing: drawing.key, "name": lambda drawing: drawing.concept}[heldout.by]
        chosen = [n for n, drawing in enumerate(drawings) if is_heldout(by(drawing), heldout.share) == wanted]
        if not chosen:
            raise UserError(
                f"data.source: {len(drawings)} icons, none of them for {split}; change heldout.share or skip"
            )
        self.drawings = [drawings[number] for number in chosen]
        self.captions = [drawing.caption(settings.caption) for drawing in self.drawings]
        self.labels = None
        if settings.classes:
            numbers = {name: number for number, name in enumerate(self.class_names)}
            self.labels = np.array([numbers[classes[number]] for number in chosen], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.drawings)

    def key(self, number: int) -> str:
        return self.drawings[number].key

    def __getitem__(self, number: int) -> Record:
        icons, icon = self.drawings[number].icons, self.drawings[number].icon
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
        """Hash the files, those of the categories, and of emoji those of the names."""
        files = [Path(file) for file in self.settings.files]
        beside = [file.with_name(icon_sets.METADATA) for file in files]
        there = [*map(_file, files), *(file for file in beside if file.is_file())]
        if self.settings.emojibase:
            there += emoji_names.files(Path(self.settings.emojibase), files)
        return hashlib.sha256("".join(map(atomic.sha256, there)).encode()).hexdigest()


def _check_package() -> None:
    try:
        import resvg_py  # noqa: F401
    except ImportError:
        raise UserError(
            "data.source iconify: needs the package resvg-py; install it with: " + installing("hpcddm[collections]")
        ) from None


def _sets(settings: Settings) -> list[IconSet]:
    sets: dict[str, IconSet] = {}
    for file in settings.files:
        icons = icon_sets.read(_file(Path(file)))
        other = sets.setdefault(icons.prefix, icons)
        require(other is icons, f"{other.file} and {icons.file} are both the set {icons.prefix}; remove one of them")
    return list(sets.values())


def _file(path: Path) -> Path:
    require(
        path.is_file(),
        f"data.source.files: {path} is no file; of a package it is icons.json; 'hpcddm prefetch emoji' fetches some",
    )
    return path


def _drawings(settings: Settings, sets: list[IconSet]) -> tuple[list[Drawing], list[Item]]:
    """List the icons of all sets but those that are skipped, and these."""
    names = None
    if settings.emojibase:
        names = EmojiNames(Path(settings.emojibase), [icons.file for icons in sets])
    drawings = [_drawing(icons, icon, names) for icons in sets for icon in icons.icons]
    patterns = settings.skip
    is_skipped = [any(fnmatchcase(name, pattern) for name in own.names for pattern in patterns) for own in drawings]
    skipped = [Item(own.key, "icons that data.source.skip names") for own in compress(drawings, is_skipped)]
    return [own for own, skip in zip(drawings, is_skipped, strict=True) if not skip], skipped


def _drawing(icons: IconSet, icon: Icon, names: EmojiNames | None) -> Drawing:
    if names is None:
        return Drawing(icons, icon)
    emoji = names.find(icon.name, icons.file)
    group = emoji.group if emoji else None
    return Drawing(icons, icon, emoji, group or (names.group_of(icon.category) if icon.category else None))


def _class(drawing: Drawing, classes: str) -> str:
    return drawing.icons.prefix if classes == "set" else drawing.value(classes, "classes")
