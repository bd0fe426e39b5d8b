"""A folder of images: with a folder per class, or the images alone.

The training images lie in <folder>/train and the held-out ones in <folder>/heldout, or <folder>/val. Where `heldout`
names another folder, or a share, <folder> itself holds the images, such as ImageNet's folder of training images; of a
share, a hash of an image's key says in which split it is (`sources.shares`).

Pictures are known by their content (`sources.listing`). Classes are numbered in alphabetical order; a folder without a
picture is not a class. Images of a class lie in its folder and no deeper: a folder in it is refused, lest its images be
missed. Whatever else lies there is passed over and counted.

A table beside the classes or images, captions.csv, captions.jsonl or captions.parquet with the columns `file` and
`caption`, gives every image its caption; `file` is relative to the table.

A list of images such as ImageNet's takes 91 bytes for each, and 128 while it is made: 0.16 GB for 1.28 million.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from hpcddm.config.schema import PathSetting
from hpcddm.config.sources import HeldoutFolder, SourceSettings
from hpcddm.data.pictures import PictureError, read_picture
from hpcddm.data.record import Record
from hpcddm.data.sources.base import SPLITS, Source, Split
from hpcddm.data.sources.listing import EXTENSIONS, beside, holds_picture, listed
from hpcddm.data.sources.shares import is_heldout
from hpcddm.data.tables import FORMATS, Table
from hpcddm.errors import UserError, require
from hpcddm.files import atomic
from hpcddm.runs.passed_over import Item, counted, described, escaped

FOLDERS = {"train": ("train",), "heldout": ("heldout", "val")}
"""Valid names for the folder of each split."""
TABLES = [f"captions{end}" for end in FORMATS]


class Settings(SourceSettings):
    """Folder that holds `train` and `heldout`, or `val`; with the key `heldout`, the images themselves."""

    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"caption", "collection", "heldout"})

    folder: PathSetting
    heldout: HeldoutFolder | None = None
    caption: str | None = None
    """Caption of every image where there is no table, in which {class} stands for the name of its class."""


class FolderSplit(Split):
    """Images of one split.

    names: their files, relative to `root`; prefix: what stands before them in keys, which tells two folders apart.
    """

    def __init__(self, settings: Settings, split: str) -> None:
        train, self.root = _root(settings, "train"), _root(settings, split)
        listing = listed(self.root, used=TABLES)
        # The training folders number the classes of both splits: a class may have no held-out images.
        classes = None if train == self.root else _classes(train)
        self.class_names, self.names, self.labels, passed_over = _by_class(self.root, train, classes, listing.folders)
        self.passed_over = [*listing.passed_over, *passed_over]
        if self.class_names:
            self.passed_over += [
                Item(escaped(name), "pictures beside the folders of classes", True) for name in listing.pictures
            ]
        else:
            self.names, self.labels = listing.pictures, None
        _check_some(self.root, self.names, bool(self.class_names), self.passed_over)
        _check_keys(self.root, self.names)
        self.table = _table(self.root)
        if self.table:
            others = Table(self.table, key="file").other_keys(self.names)
            self.passed_over += [Item(escaped(name), f"rows of {self.table.name} without an image") for name in others]
        share = settings.heldout and settings.heldout.share
        if split == "train":
            self.passed_over += _beside(settings)
        elif share:
            # The training images lie in the same folder.
            self.passed_over = []
        # A key is for ever, and an image may change the split with another share.
        self.prefix = "" if share else f"{split}-"
        if share:
            self._keep([is_heldout(_key(name), share) == (split == "heldout") for name in self.names])
            if not self.names:
                raise UserError(f"data.source.heldout.share: {share}: leaves no {split} images in {self.root}")
        self._template = settings.caption
        self.has_captions = self.table is not None or self._template is not None
        self._captions = _captions(self.table, self.names) if self.table else None
        _check_template(self._template, bool(self.class_names))

    def __len__(self) -> int:
        return len(self.names)

    def key(self, number: int) -> str:
        return f"{self.prefix}{_key(self.names[number])}"

    def __getitem__(self, number: int) -> Record:
        name = self.names[number]
        path = self.root / name
        try:
            image = read_picture(path.read_bytes())
        except (OSError, PictureError) as error:
            raise PictureError(f"{path}: no readable image ({error}); remove or replace it") from None
        label = None if self.labels is None else int(self.labels[number])
        return Record(self.key(number), image, label, self._caption(number, label))

    def _caption(self, number: int, label: int | None) -> str | None:
        if self._captions is not None:
            return self._captions[number]
        if self._template is None or label is None:
            return self._template
        return self._template.replace("{class}", self.class_names[label])

    def _keep(self, kept: list[bool]) -> None:
        """Keep some of the images."""
        places = np.flatnonzero(kept)
        self.names = [self.names[place] for place in places]
        self.labels = None if self.labels is None else self.labels[places]


def _root(settings: Settings, split: str) -> Path:
    """Return the folder with the classes of a split, or with its images alone."""
    folder, heldout = Path(settings.folder), settings.heldout
    if heldout is None:
        return _split_folder(folder, split)
    key = "folder"
    if split == "heldout" and heldout.folder is not None:
        folder, key = Path(heldout.folder), "heldout.folder"
    require(folder.is_dir(), f"data.source.{key}: {folder} is no folder")
    return folder


def _split_folder(folder: Path, split: str) -> Path:
    candidates = [folder / name for name in FOLDERS[split]]
    there = [path for path in candidates if path.is_dir()]
    if len(there) > 1:
        names = " and ".join(str(path) for path in there)
        raise UserError(f"data.source.folder: {names} both hold {split} images; rename or remove one of them")
    if not there:
        names = " or ".join(FOLDERS["heldout"])
        raise UserError(
            f"data.source.folder: {candidates[0]} is no folder; there must be {folder}/train and {folder}/{names}, or"
            " the key data.source.heldout"
        )
    return there[0]


def _beside(settings: Settings) -> list[Item]:
    """List what lies beside the folders of the splits, where they lie in one."""
    if settings.heldout is not None:
        return []
    used = {name for names in FOLDERS.values() for name in names}
    return beside(Path(settings.folder), used, "the folders of the splits")


def _classes(train: Path) -> list[str]:
    """List the folders of classes among those of the training images."""
    return [name for name in listed(train).folders if holds_picture(train / name)]


def _by_class(
    root: Path, train: Path, classes: list[str] | None, folders: list[str]
) -> tuple[list[str], list[str], Int64[np.ndarray, " n"], list[Item]]:
    """List the classes, the images in a split's folders, their classes, and what is passed over there.

    train: the folder with the training images; classes: those that have any there, None where it is the split's own.
    """
    numbers = None if classes is None else {name: number for number, name in enumerate(classes)}
    present: list[str] = []
    names: list[str] = []
    labels = [np.zeros(0, dtype=np.int64)]
    items: list[Item] = []
    for name in folders:
        inner, pictures, passed_over = listed(root / name, f"{name}/")
        items += passed_over
        if inner:
            raise UserError(
                f"{root / name / inner[0]}: a folder in that of a class; move its images up, or the folder elsewhere"
            )
        if not pictures:
            items.append(Item(f"{escaped(name)}/", "folders without a picture, which are no classes"))
            continue
        if numbers is not None and name not in numbers:
            raise UserError(f"{root / name}: no such class with images in {train} ({', '.join(numbers)})")
        names += [f"{name}/{picture}" for picture in pictures]
        labels.append(np.full(len(pictures), len(present) if numbers is None else numbers[name], dtype=np.int64))
        present.append(name)
    return present if classes is None else classes, names, np.concatenate(labels), items


def _check_some(root: Path, names: list[str], has_classes: bool, passed_over: list[Item]) -> None:
    """Raise `UserError` for a split without an image, saying what else lies in its folder."""
    if names:
        return
    kinds = ", ".join(sorted(EXTENSIONS))
    others = f"; passed over: {described(counted(passed_over))}" * bool(passed_over)
    where = f"{root}/<class>/ holds no images ({kinds})"
    if not has_classes:
        where = f"{root} holds neither images ({kinds}) nor folders of classes with images"
    raise UserError(f"data.source.folder: {where}{others}")


def _key(name: str) -> str:
    """Return the key of an image by its file, relative to the split's folder.

    A dot would end a WebDataset key; the position is no part of it, for an image more must rename no other.
    """
    return name.replace("/", "-").replace(".", "_")


def _check_keys(root: Path, names: list[str]) -> None:
    """Raise `UserError` naming two files that have the same key, such as a.b.png and a_b.png."""
    hashes = np.fromiter((hash(_key(name)) for name in names), np.int64, len(names))
    order = np.argsort(hashes)
    for place in np.flatnonzero(np.diff(hashes[order]) == 0):
        first, second = (names[number] for number in sorted(order[place : place + 2]))
        if _key(first) == _key(second):
            raise UserError(f"{root}: {first} and {second} have the same key, {_key(first)}; rename one of them")


def _table(root: Path) -> Path | None:
    """Return the table of captions of a split's folder; None without one."""
    there = [root / name for name in TABLES if (root / name).is_file()]
    if len(there) > 1:
        raise UserError(f"{there[0]} and {there[1]}: two tables of captions; remove one of them")
    return there[0] if there else None


def _check_template(template: str | None, has_classes: bool) -> None:
    """Raise `UserError` for a caption with a placeholder that would stand in it as it is."""
    valid = ["class"] if has_classes else []
    for name in re.findall(r"\{(.*?)\}", template or ""):
        there = "{class}, the name of an image's class" if has_classes else "none, as the images have no classes"
        require(name in valid, f"data.source.caption: {{{name}}} stands for nothing; there is: {there}")


def _captions(table: Path, names: list[str]) -> list[str | None]:
    """Return the caption of every image."""
    opened = Table(table, key="file")
    captions = opened.texts("caption", names)
    missing = [name for name, caption in zip(names, captions, strict=True) if caption is None]
    if missing:
        count = f"{len(missing)} of {len(names)} lack one; the first file in the table is {opened.first_key()}"
        raise UserError(f"{table}: no caption of {missing[0]}; every image needs one, and {count}")
    return captions


class ImageFolder(Source[Settings]):
    """No image is opened until it is accessed."""

    def open_split(self, split: str) -> FolderSplit:
        return FolderSplit(self.settings, split)

    def content(self) -> str:
        """Hash the names and sizes of all images: reading a million of them at every submit would take too long.

        Captions are hashed whole.
        """
        files, tables = [], []
        for split in SPLITS:
            records = self.open_split(split)
            place = split if self.settings.heldout else records.root.name
            files += [(f"{place}/{name}", _size(records.root / name)) for name in records.names]
            tables += [] if records.table is None else [atomic.sha256(records.table)]
        return hashlib.sha256(repr([*files, *tables]).encode()).hexdigest()


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise UserError(
            f"{path}: was there a moment ago ({error.strerror}); submit when nobody changes the folder"
        ) from None
