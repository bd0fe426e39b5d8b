"""Prepare drawings of emoji with captions, the images of the experiments emoji, emoji_latents and concepts.

    python experiments/emoji/prepare.py && hpcddm submit emoji

fetches four icon sets and Unicode's names from npm and proves their bytes; draws the icons on white, without those in a
skin tone; and writes train/GROUP/*.png, heldout/GROUP/*.png and a captions.csv in both into the folder that the
experiment names as data.source.folder, where the source image_folder reads them. Then it fetches the weights.

Sets are in Iconify JSON (https://iconify.design/docs/types/iconify-json.html). Groups and captions, "label, keywords",
are those of the package emojibase-data. An icon's emoji is found by its code points, which chars.json beside the icons
gives by name: in its set first and then in the others, because sets share most names. Else it is found by its name,
which is the label in small letters with hyphens.
"""

import csv
import importlib.util
import json
import os
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import click
from PIL import Image, ImageOps

from hpcddm.commands.prefetch import fetch_needed
from hpcddm.commands.prefetch_data import fetch_download
from hpcddm.errors import UserError, require
from hpcddm.errors.next_step import install_command
from hpcddm.errors.printing import echo
from hpcddm.files import atomic
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.sources.downloads.npm_packages import NpmDownload, NpmPackage
from hpcddm.sources.heldout_share import is_heldout

ICONS, CATEGORIES, CODES, INFO = "icons.json", "metadata.json", "chars.json", "info.json"
"""Files of a set: drawings; categories, where the first file has none; code points; author and licence."""
FILES = tuple(f"package/{file}" for file in (ICONS, CATEGORIES, CODES, INFO))
NOTO = (FILES, "Google LLC", "Apache-2.0", "https://github.com/googlefonts/noto-emoji")
FLUENT = (FILES, "Microsoft Corporation", "MIT", "https://github.com/microsoft/fluentui-emoji")
HASHES = {
    ("noto", "1.2.9", NOTO): "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad",
    ("noto-v1", "1.2.5", NOTO): "2bf62c26c2c2884aa99e90aec942cdaee17a5921f05690694f4978ad4b017c37",
    ("fluent-emoji", "1.2.7", FLUENT): "8044210dbf11e016d4de85f15d01a243423bd832457e7e2491df1b751c0e272b",
    ("fluent-emoji-flat", "1.2.6", FLUENT): "7d064769dee690815f823bc5bcc511d957198caf9f5edd8dd9c1aa48a6aeb175",
}
"""Name, version, and what is stated of a set -> SHA-256 of its package."""
SETS = tuple(
    NpmPackage(f"@iconify-json/{name}", version, sha256, name, *rest)
    for (name, version, rest), sha256 in HASHES.items()
)
TABLE = NpmPackage(
    *("emojibase-data", "17.0.0", "d01d0e2ca4e22cb402679532155342c71e2e871f25c32223c013b8b166ebdf5a", "emojibase"),
    ("package/en/data.json", "package/en/messages.json", "package/LICENSE"),
    *("Miles Johnson", "MIT", "https://github.com/milesj/emojibase", "Names and keywords after data of Unicode, Inc."),
)
COMMAND = ("python", __file__)
EMOJI, NAMES = NpmDownload("emoji", (*SETS, TABLE), COMMAND), NpmDownload("emoji_names", (TABLE,), COMMAND)

SPLITS = {"concepts": (0.2, "key")}
"""Share that is held out, and by what, for experiments that need another one than (0.15, "name")."""
SIDE = 64
"""Side of a drawing in pixels; of an experiment with larger images it is theirs, as no drawing is enlarged."""
SKIN_TONE = "skin-tone"
"""Part of the names of drawings that differ from another one in the colour of the skin."""
NAME = re.compile("[a-z0-9]+(-[a-z0-9]+)*")
"""Names of sets and icons, which become names of files."""
BOX = {"left": 0, "top": 0, "width": 16, "height": 16}
"""Defaults of an icon's box."""


class Emoji(NamedTuple):
    """One emoji; label: its short name in CLDR; thing: the label without skin tones; tags: its keywords."""

    label: str
    thing: str
    tags: tuple[str, ...]
    group: str | None

    @property
    def caption(self) -> str:
        """The label, and the keywords that it does not contain already."""
        return ", ".join([self.label, *(tag for tag in self.tags if not word_set(tag) <= word_set(self.label))])


class Drawing(NamedTuple):
    """One icon; key: its full name, such as noto:swan; thing: the name that drawings of the same thing share."""

    key: str
    thing: str
    caption: str
    group: str
    icon: dict[str, Any]
    """Its settings in Iconify JSON."""

    @property
    def file(self) -> str:
        """Path in the folder of a split."""
        return f"{self.group}/{self.key.replace(':', '_')}.png"

    def render(self, size: int) -> Image.Image:
        """Draw the icon on white, (size, size), whole and in the middle where it is not square."""
        from resvg_py import svg_to_bytes

        box, body = " ".join(f"{float(self.icon[key]):g}" for key in BOX), self.icon["body"]
        if not isinstance(body, str):
            raise TypeError("its body is not a text")
        opening = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        svg = f'{opening} width="{size}" height="{size}" viewBox="{box}">{body}</svg>'
        # Fonts of this machine would draw a text in another way than those of the next one.
        image = Image.open(BytesIO(svg_to_bytes(svg, background="#ffffff", skip_system_fonts=True))).convert("RGB")
        image = ImageOps.mirror(image) if self.icon.get("hFlip") else image
        image = ImageOps.flip(image) if self.icon.get("vFlip") else image
        # Quarter turns clockwise.
        return image.rotate(-90 * int(self.icon.get("rotate", 0)))


class UnicodeNames:
    """Emoji by code points and by label: the tables in `folder`, and the code points of the icons of `sets`."""

    def __init__(self, folder: Path, sets: Sequence[Path]) -> None:
        self.groups = {group["order"]: group["message"] for group in read_json(folder / "messages.json")["groups"]}
        self._by_code: dict[str, Emoji] = {}
        self._by_name: dict[str, Emoji] = {}
        for entry in read_json(folder / "data.json"):
            group = self.groups.get(entry.get("group"))
            for form in (entry, *entry.get("skins", ())):
                emoji = Emoji(form["label"], entry["label"], tuple(entry.get("tags", ())), group)
                self._by_code[plain_code(form["hexcode"])] = emoji
                self._by_name.setdefault(as_icon_name(form["label"]), emoji)
        self._codes = {one: codes_by_name(one) for one in sets}

    def find(self, name: str, folder: Path) -> Emoji | None:
        """Find the emoji of an icon by its name and the folder of its set; None for an icon that is not an emoji."""
        for codes in (self._codes[folder], *self._codes.values()):
            if codes.get(name) in self._by_code:
                return self._by_code[codes[name]]
        # Some sets leave out "skin tone" in names.
        return self._by_name.get(name) or self._by_name.get(f"{name}-{SKIN_TONE}")

    def group_of(self, category: str) -> str:
        """Return the group of a set's category, such as "people & body" for "People Body"; else the category itself."""
        words = word_set(category)
        groups = (group for group in self.groups.values() if words and words <= word_set(group))
        return next(groups, re.sub(r"[/\x00-\x1f]", "-", category.lower()).strip(". ")) or "other"


def plain_code(hexcode: str) -> str:
    """Return code points without FE0F, which asks for a colourful picture: sets write it or leave it out."""
    return "-".join(part for part in hexcode.upper().split("-") if part != "FE0F")


def codes_by_name(folder: Path) -> dict[str, str]:
    """Return the code points of a set's icons; of several with the same drawing the first one."""
    with valid(folder / CODES):
        codes = read_json(folder / CODES) if (folder / CODES).is_file() else {}
        return {name: plain_code(code) for code, name in reversed(codes.items())}


def as_icon_name(label: str) -> str:
    """Write a label as sets name their icons: "flag: Cote d'Ivoire" is flag-cote-divoire."""
    spelt = label.replace("*", "asterisk").replace("#", "hash").replace("'", "")
    plain = unicodedata.normalize("NFKD", spelt).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")


def word_set(text: str) -> set[str]:
    """Return the words of a text in small letters."""
    return set(re.findall(r"\w+", text.lower()))


@contextmanager
def valid(place: object) -> Iterator[None]:
    """Raise the errors of wrong values in a set as a `UserError` that names their place."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{place}: not valid ({type(error).__name__}: {error}); mend or remove it") from None


def read_json(path: Path) -> Any:
    """Read a JSON file; raises `UserError` naming it."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error}); --set names a folder with {ICONS}") from None


def read_set(folder: Path, names: UnicodeNames, left_out: Counter[str]) -> list[Drawing]:
    """Read the drawings of a set in the order of their names, and count what is left out by reason."""
    drawings = []
    with valid(folder / ICONS):
        content = read_json(folder / ICONS)
        prefix, icons, aliases = content["prefix"], content["icons"], content.get("aliases", {})
        turned = [name for name, alias in aliases.items() if alias.keys() - {"parent", "hidden"}]
        listed = sorted([*icons.keys(), *turned])
    with valid(f"{folder}: categories"):
        has_file = "categories" not in content and (folder / CATEGORIES).is_file()
        by_category = (read_json(folder / CATEGORIES) if has_file else content).get("categories", {})
        # Of several categories of an icon the first one counts.
        categories = {name: str(category) for category, names in reversed(by_category.items()) for name in names}
    left_out["other names of a drawing"] += len(aliases) - len(turned)
    for name in listed:
        with valid(f"{folder / ICONS}: icon {name}"):
            chain, icon = resolved(name, content)
            if not (NAME.fullmatch(prefix) and NAME.fullmatch(name)):
                raise ValueError(f"{prefix}:{name} has other characters than small letters, digits and single hyphens")
        emoji = names.find(name, folder)
        if icon.get("hidden"):
            left_out["hidden"] += 1
        elif SKIN_TONE in name or (emoji and SKIN_TONE in as_icon_name(emoji.label)):
            left_out["with a skin tone"] += 1
        else:
            category = next((categories[other] for other in chain if other in categories), "")
            group = (emoji and emoji.group) or names.group_of(category)
            thing, caption = (as_icon_name(emoji.thing), emoji.caption) if emoji else (name, name.replace("-", " "))
            drawings.append(Drawing(f"{prefix}:{name}", thing, caption, group, icon))
    return drawings


def resolved(name: str, content: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the names from an icon to the one that it is an alias of, and its settings.

    Flips and turns of an alias are added to those of its parent, its box replaces the parent's.
    """
    chain, aliases = [name], content.get("aliases", {})
    while chain[-1] in aliases:
        chain.append(aliases[chain[-1]]["parent"])
        if chain[-1] in chain[:-1]:
            raise ValueError(f"an alias of itself, {' of '.join(chain)}")
    icon = BOX | {key: content[key] for key in BOX if key in content} | content["icons"][chain[-1]]
    for alias in (aliases[other] for other in reversed(chain[:-1])):
        flips = {key: icon.get(key, False) != alias.get(key, False) for key in ("hFlip", "vFlip")}
        icon |= alias | flips | {"rotate": icon.get("rotate", 0) + alias.get("rotate", 0)}
    return chain, icon


def split(drawings: Sequence[Drawing], heldout: float, by: str) -> dict[str, list[Drawing]]:
    """Split drawings by a hash of their keys, or of their things: then all drawings of a thing are in one split."""
    splits: dict[str, list[Drawing]] = {"train": [], "heldout": []}
    for drawing in drawings:
        is_held = is_heldout(drawing.key if by == "key" else drawing.thing, heldout)
        splits["heldout" if is_held else "train"].append(drawing)
    train, held = ({drawing.group for drawing in part} for part in splits.values())
    require(bool(train and held), f"--heldout {heldout}: one split has all {len(drawings)} drawings; change the share")
    lost = ", ".join(sorted(held - train))
    require(not lost, f"--heldout {heldout}: all drawings of the group {lost} are held out; change the share")
    return splits


def attribution(folder: Path) -> str:
    """Return a line that says who made a set, under which licence, and its hash."""
    with valid(folder / INFO):
        info = read_json(folder / INFO)
        licence = f"{info['license']['title']} {info['license'].get('url', '')}".strip()
        return f"- {info['name']} by {info['author']['name']}, {licence}; SHA-256 {atomic.sha256(folder / ICONS)}"


def write(folder: Path, splits: dict[str, list[Drawing]], size: int) -> None:
    """Write pictures and captions."""
    for split, drawings in splits.items():
        for group in {drawing.group for drawing in drawings}:
            (folder / split / group).mkdir(parents=True)
        for drawing in drawings:
            with valid(f"icon {drawing.key}"):
                image = drawing.render(size)
            image.save(folder / split / drawing.file)
        with open(folder / split / "captions.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("file", "caption"), *((one.file, one.caption) for one in drawings)])


def prepare(folder: Path, table: Path, sets: Sequence[Path], heldout: float, by: str, size: int) -> None:
    """Draw the sets into `folder`, which appears when it is whole; one that was prepared in the same way stays."""
    names, left_out = UnicodeNames(table, sets), Counter[str]()
    drawings = [drawing for one in sets for drawing in read_set(one, names, left_out)]
    twice = [key for key, count in Counter(drawing.key for drawing in drawings).items() if count > 1]
    require(not twice, f"--set: two sets have the icon {', '.join(twice[:1])}; remove one of the sets")
    splits = split(drawings, heldout, by)
    source = f"- Captions and groups: {TABLE.requirement} by {TABLE.author}, {TABLE.licence}. {TABLE.note}"
    change = f"Changed: drawn on white, {size} x {size} pixels; {heldout} of all held out, by {by}."
    text = "\n".join(["# Attribution", "", *map(attribution, sets), source, "", change]) + "\n"
    marker = folder / "ATTRIBUTION.md"
    if folder.exists() and any(folder.iterdir()):
        is_same = marker.is_file() and marker.read_text() == text
        require(is_same, f"{folder}: has other images; remove it, or name another one: data.source.folder=FOLDER")
        echo(f"present  {folder}")
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".preparing-") as staged:
        # In a folder of its own, because a temporary one is closed to everybody else.
        whole = Path(staged, "images")
        write(whole, splits, size)
        (whole / marker.name).write_text(text)
        os.rename(whole, folder)
    counts = " and ".join(f"{len(part):,} {split}" for split, part in splits.items())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(left_out.items()))
    echo(f"drawn    {folder}  {counts} images; left out: {reasons}")


FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("experiment", default="emoji")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--heldout", type=float, metavar="SHARE", help="Default: 0.15, and 0.2 for concepts.")
@click.option("--by", type=click.Choice(["name", "key"]), help="Default: name, and key for concepts.")
@click.option("--set", "sets", type=FOLDER, multiple=True, help="Folder of another set, instead of the four.")
@click.option("--from", "archives_in", type=FOLDER, help="Folder with the packages of npm, instead of a network.")
def main(
    experiment: str,
    overrides: tuple[str, ...],
    sets: tuple[Path, ...],
    archives_in: Path | None,
    heldout: float | None,
    by: str | None,
) -> None:
    """Prepare the images of EXPERIMENT in its data.source.folder, and fetch its weights.

    A share is held out: by name all drawings of a thing together, so that no training image has the caption of a
    held-out one; by key single drawings. A set is a folder with the JSON files of a npm package @iconify-json/*.
    """
    settings = load_experiment(experiment, overrides)
    source, folder = settings.data.source, Path(getattr(settings.data.source, "folder", ""))
    require(source.name == "image_folder", f"{experiment}: data.source is {source.name}, and not an image_folder")
    needed = f"the package resvg-py draws the icons; install it with: {install_command('resvg-py')}"
    require(importlib.util.find_spec("resvg_py") is not None, needed)
    collection = NAMES if sets else EMOJI
    fetch_download(collection, None, archives_in)
    table = collection.place() / TABLE.folder
    sets = sets or tuple(collection.place() / package.folder for package in SETS)
    share, usual = SPLITS.get(settings.name, (0.15, "name"))
    share = share if heldout is None else heldout
    try:
        prepare(folder, table, sets, share, by or usual, max(SIDE, settings.data.image_size))
    except OSError as error:
        raise UserError(f"{folder}: cannot write there: {error.strerror or error}") from error
    fetch_needed(experiment, overrides)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
