"""Unicode's names of emoji, their keywords and groups: the tables of the npm package emojibase-data, and icons in them.

An icon is found by its code points, which `chars.json` beside the icons of a set gives by name, in its own set first
and then in any other one, because sets share most names; else by its name, which is the label in small letters with
hyphens. Sets that leave out "skin tone" in names are understood.
"""

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError

TABLE, MESSAGES, CODES = "data.json", "messages.json", "chars.json"
"""Table of the emoji, names of its groups, and code points of the icons of a set by name."""
SUFFIXES = ("", "-skin-tone")
"""What a name may lack of a label."""
PRESENTATION = "FE0F"
"""Code point that asks for a colourful picture; sets write it or leave it out."""


@dataclass(frozen=True)
class Emoji:
    """One emoji; label: its short name in CLDR; concept: the label without skin tones."""

    label: str
    concept: str
    tags: tuple[str, ...]
    group: str | None


class EmojiNames:
    """Emoji by code points and by label; icon_files: files of sets, whose `chars.json` are read.

    Raises `UserError` naming the file that is missing or wrong.
    """

    def __init__(self, folder: Path, icon_files: list[Path]) -> None:
        table, messages = _json(folder / TABLE), _json(folder / MESSAGES)
        self._by_code: dict[str, Emoji] = {}
        self._by_name: dict[str, Emoji] = {}
        try:
            self.groups = {int(group["order"]): str(group["message"]) for group in messages["groups"]}
            for entry in table:
                group = self.groups.get(entry.get("group"))
                for form in (entry, *entry.get("skins", ())):
                    emoji = Emoji(form["label"], entry["label"], tuple(entry.get("tags", ())), group)
                    self._by_code[_code(form["hexcode"])] = emoji
                    self._by_name.setdefault(as_icon_name(form["label"]), emoji)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{folder}: no tables of emojibase-data ({type(error).__name__}: {error})") from None
        self._codes = {file: _codes(file) for file in icon_files}

    def find(self, name: str, file: Path) -> Emoji | None:
        """Find the emoji of an icon by its name and the file of its set; None for an icon that is none."""
        others = (codes.get(name) for codes in self._codes.values())
        for code in (self._codes[file].get(name), *others):
            if code in self._by_code:
                return self._by_code[code]
        return next((self._by_name[name + end] for end in SUFFIXES if name + end in self._by_name), None)

    def group_of(self, category: str) -> str:
        """Return the group of a set's category, such as "People Body" for "people & body"; else the category itself."""
        words = _words(category)
        return next((group for group in self.groups.values() if words <= _words(group)), category.lower())


def files(folder: Path, icon_files: list[Path]) -> list[Path]:
    """List the files that are read."""
    codes = [file.with_name(CODES) for file in icon_files]
    return [folder / TABLE, folder / MESSAGES, *(file for file in codes if file.is_file())]


def as_icon_name(label: str) -> str:
    """Write a label as sets name their icons: "flag: Cote d'Ivoire" is flag-cote-divoire."""
    spelt = label.replace("*", "asterisk").replace("#", "hash").replace("'", "")
    plain = unicodedata.normalize("NFKD", spelt).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")


def new_tags(emoji: Emoji) -> list[str]:
    """List the keywords that the label does not say already."""
    said = set(re.findall(r"\w+", emoji.label.lower()))
    return [tag for tag in emoji.tags if not set(re.findall(r"\w+", tag.lower())) <= said]


def _codes(file: Path) -> dict[str, str]:
    """Return the code points of a set's icons by name."""
    path = file.with_name(CODES)
    codes = _json(path) if path.is_file() else {}
    if not isinstance(codes, dict):
        raise UserError(f"{path}: needs a mapping of code points to names")
    # Of several code points with the same picture the first one counts.
    return {name: _code(code) for code, name in reversed(codes.items())}


def _code(hexcode: str) -> str:
    return "-".join(part for part in hexcode.upper().split("-") if part != PRESENTATION)


def _words(text: str) -> set[str]:
    return set(re.findall("[a-z]+", text.lower()))


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(
            f"data.source.emojibase: {path} is missing; 'hpcddm prefetch emoji' fetches it, in a folder emojibase"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: no readable JSON ({error})") from None
