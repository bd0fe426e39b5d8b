"""Icon sets in Iconify JSON: the icons of a file, each with its SVG body, box and turns.

The format is that of the npm packages `@iconify-json/*`: https://iconify.design/docs/types/iconify-json.html.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from hpcddm.data.pictures import read_picture
from hpcddm.errors import UserError
from hpcddm.pipeline.passed_over import Item

BOX = {"left": 0, "top": 0, "width": 16, "height": 16}
"""Defaults of an icon's box."""
TURNS = (None, Image.Transpose.ROTATE_270, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_90)
"""Transpositions for quarter turns clockwise."""
METADATA = "metadata.json"
"""File beside the icons that has their categories, where their own has not."""


@dataclass(frozen=True)
class Icon:
    """One picture of a set; box: left, top, width, height; quarter turns are clockwise and come after the flips."""

    name: str
    category: str | None
    body: str
    box: tuple[float, float, float, float]
    is_mirrored: bool
    is_upside_down: bool
    quarter_turns: int

    def render(self, size: int) -> Image.Image:
        """Draw the icon on white, (size, size), whole and in the middle where it is no square.

        Raises `ValueError` when it cannot be drawn.
        """
        from resvg_py import svg_to_bytes

        opening = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        shape = f'width="{size}" height="{size}" viewBox="{" ".join(f"{value:g}" for value in self.box)}"'
        # Without the fonts of the machine, on which the same text would look otherwise.
        content = svg_to_bytes(f"{opening} {shape}>{self.body}</svg>", background="#ffffff", skip_system_fonts=True)
        image = read_picture(content).convert("RGB")
        if self.is_mirrored:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if self.is_upside_down:
            image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
        turn = TURNS[self.quarter_turns]
        return image if turn is None else image.transpose(turn)


@dataclass(frozen=True)
class IconSet:
    """Icons of a file in the order of their names; prefix: the set's name; passed_over: its other entries."""

    file: Path
    prefix: str
    icons: list[Icon]
    passed_over: list[Item]


def read(file: Path) -> IconSet:
    """Read a set, without hidden icons and without aliases that only give a picture another name.

    Raises `UserError` naming the file, and the icon that is wrong.
    """
    content = _json(file)
    icons, aliases = content.get("icons"), content.get("aliases", {})
    if not (isinstance(content.get("prefix"), str) and isinstance(icons, dict) and isinstance(aliases, dict)):
        raise UserError(f"{file}: no icons in Iconify JSON, which have `prefix` and `icons`")
    pictures = [*icons, *(name for name, alias in aliases.items() if alias.keys() - {"parent", "hidden"})]
    prefix = content["prefix"]
    mere = [Item(f"{prefix}:{name}", "aliases that only name an icon") for name in sorted(aliases.keys() - {*pictures})]
    categories, found, hidden = _categories(file, content), [], []
    for name in sorted(pictures):
        try:
            names, icon = _merged(name, content)
            if icon.get("hidden"):
                hidden.append(Item(f"{prefix}:{name}", "hidden icons"))
            else:
                category = next((categories[other] for other in names if other in categories), None)
                found.append(_icon(name, category, icon))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{file}: icon {name}: no valid one ({type(error).__name__}: {error})") from None
    return IconSet(file, prefix, found, hidden + mere)


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: no readable JSON ({error})") from None
    return content if isinstance(content, dict) else {}


def _categories(file: Path, content: dict[str, Any]) -> dict[str, str]:
    """Return the category of every icon that has one; of several the first."""
    if "categories" not in content and file.with_name(METADATA).is_file():
        content = _json(file.with_name(METADATA))
    listed = [(name, category) for category, names in content.get("categories", {}).items() for name in names]
    return dict(reversed(listed))


def _merged(name: str, content: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the names from an icon to the one that it is an alias of, and its settings.

    Flips and turns of an alias are added to those of its parent, its box replaces the parent's.
    """
    names, aliases = [name], content.get("aliases", {})
    while names[-1] in aliases:
        names.append(aliases[names[-1]]["parent"])
        if names[-1] in names[:-1]:
            raise ValueError(f"an alias of itself, {' of '.join(names)}")
    merged = BOX | {key: content[key] for key in BOX if key in content} | content["icons"][names[-1]]
    for alias in (aliases[other] for other in reversed(names[:-1])):
        turned = {key: merged.get(key, False) != alias.get(key, False) for key in ("hFlip", "vFlip")}
        merged |= alias | turned | {"rotate": merged.get("rotate", 0) + alias.get("rotate", 0)}
    return names, merged


def _icon(name: str, category: str | None, icon: dict[str, Any]) -> Icon:
    left, top, width, height = (float(icon[key]) for key in BOX)
    if not isinstance(icon["body"], str):
        raise TypeError("its body is no text")
    is_mirrored, is_upside_down = bool(icon.get("hFlip")), bool(icon.get("vFlip"))
    quarter_turns = int(icon.get("rotate", 0)) % len(TURNS)
    return Icon(name, category, icon["body"], (left, top, width, height), is_mirrored, is_upside_down, quarter_turns)
