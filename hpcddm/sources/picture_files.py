"""Pictures that are files of their own: their keys, their classes by folder, and what else is in the folders.

A list of pictures such as ImageNet's takes 91 bytes for each, and 128 while it is made: 0.16 GB for 1.28 million.
Captions from a table are in memory besides; those from files beside the pictures, or from a text for all, are not.
"""

import os
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from hpcddm.data.image_decoding import ImageError, read_image
from hpcddm.data.tars.record import Record
from hpcddm.errors import UserError, require
from hpcddm.runs.passed_over import PassedOverItem, count_items, describe_counts, escape_name
from hpcddm.sources.base import Split
from hpcddm.sources.heldout_share import is_of_split
from hpcddm.sources.listing import EXTENSIONS, CaptionFiles, contains_image, is_inner_images, list_folder

MAX_CLASSES_SHOWN = 20
"""Most classes that an error names."""


class PictureFiles(Split):
    """Pictures of one split, each of them a file.

    Attributes:
        root: Folder of the split.
        names: Files of the pictures, relative to `root`.
        place: Text before the names for `Catalog.source_file`.
        prefix: Text before the names in keys, to distinguish two folders.
        template: Caption of every picture that has no other; {class} is replaced by the name of its class.
    """

    root: Path
    names: list[str]
    place: str
    passed_over: list[PassedOverItem]
    prefix: str = ""
    template: str | None = None

    def __len__(self) -> int:
        return len(self.names)

    def key(self, number: int) -> str:
        return f"{self.prefix}{self.key_of(self.names[number])}"

    def key_of(self, name: str) -> str:
        """Return the key of a picture by its file, relative to the split's folder, without the prefix.

        A dot would end a WebDataset key. The key omits the position, so that adding a picture renames no other.
        """
        return name.replace("/", "-").replace(".", "_")

    def caption(self, number: int) -> str | None:
        """Return the caption of a picture; raises `ImageError` where every picture needs one and this lacks it."""
        if self.template is None or self.labels is None:
            return self.template
        return self.template.replace("{class}", self.class_names[self.labels[number]])

    def __getitem__(self, number: int) -> Record:
        path = self.root / self.names[number]
        try:
            content = path.read_bytes()
            image = read_image(content)
        except (OSError, ImageError) as error:
            raise ImageError(f"{path}: no readable image ({error}); remove or replace it") from None
        label = None if self.labels is None else int(self.labels[number])
        file = f"{self.place}{self.names[number]}"
        return Record(self.key(number), image, label, self.caption(number), file, content)

    def divide(self, split: str, share: float | None) -> None:
        """Take the pictures of this split; with a share, where all are in one folder, by a hash of their keys."""
        # A key is for ever, and an image may change the split with another share.
        self.prefix = "" if share else f"{split}-"
        if not share:
            return
        if split == "heldout":
            # What is beside them is named with the training images.
            self.passed_over = []
        places = np.flatnonzero([is_of_split(split, share, self.key_of(name)) for name in self.names])
        require(len(places) > 0, f"data.source.heldout.share: {share}: leaves no {split} images in {self.root}")
        self.names = [self.names[place] for place in places]
        self.labels = None if self.labels is None else self.labels[places]

    def check_keys(self) -> None:
        """Raise `UserError` naming two files that have the same key, such as a.b.png and a_b.png."""
        hashes = np.fromiter((hash(self.key_of(name)) for name in self.names), np.int64, len(self.names))
        order = np.argsort(hashes)
        for place in np.flatnonzero(np.diff(hashes[order]) == 0):
            first, second = (self.names[number] for number in sorted(order[place : place + 2]))
            if self.key_of(first) == self.key_of(second):
                named = f"{first} and {second} have the same key, {self.key_of(first)}"
                raise UserError(f"{self.root}: {named}; rename one of them")

    def check_some(self) -> None:
        """Raise `UserError` for a split without a picture, naming the other content of its folder."""
        if self.names:
            return
        kinds = ", ".join(sorted(EXTENSIONS))
        others = f"; passed over: {describe_counts(count_items(self.passed_over))}" * bool(self.passed_over)
        where = f"{self.root}/<class>/ holds no images ({kinds})"
        if not self.class_names:
            where = f"{self.root} holds neither images ({kinds}) nor folders of classes with images"
        raise UserError(f"data.source.folder: {where}{others}")

    def check_template(self) -> None:
        """Raise `UserError` for a caption with a placeholder that would stay in it."""
        valid = ["class"] if self.class_names else []
        for name in re.findall(r"\{(.*?)\}", self.template or ""):
            there = "{class}, the name of an image's class" if valid else "none, as the images have no classes"
            require(name in valid, f"data.source.caption: {{{name}}} is unknown; valid: {there}")


def class_folders(train: Path) -> list[str]:
    """List the folders of classes among those of the training pictures: those with a picture."""
    return [name for name in list_folder(train).folders if _has_picture(train / name)]


def _has_picture(folder: Path) -> bool:
    if contains_image(folder):
        return True
    inner = list_folder(folder).folders
    return is_inner_images(inner, 0) and contains_image(folder / inner[0])


def list_classes(
    root: Path,
    train: Path,
    classes: list[str] | None,
    folders: list[str],
    captions: Mapping[str, CaptionFiles] | None = None,
) -> tuple[list[str], list[str], Int64[np.ndarray, " n"], list[PassedOverItem]]:
    """List the classes, the images in a split's folders, their classes, and what is passed over there.

    train: the folder with the training images; classes: those that have any there, None where it is the split's own;
    captions: as for `list_folder`.
    """
    numbers = None if classes is None else {name: number for number, name in enumerate(classes)}
    present: list[str] = []
    names: list[str] = []
    labels = [np.zeros(0, dtype=np.int64)]
    items: list[PassedOverItem] = []
    for name in folders:
        place = name
        inner, pictures, passed_over = list_folder(root / place, f"{place}/", captions=captions)
        items += passed_over
        if is_inner_images(inner, len(pictures)):
            place = f"{name}/{inner[0]}"
            inner, pictures, passed_over = list_folder(root / place, f"{place}/", captions=captions)
            items += passed_over
        if inner:
            raise UserError(
                f"{root / place / inner[0]}: a folder in that of a class; move its images up, or the folder elsewhere"
            )
        if not pictures:
            items.append(PassedOverItem(f"{escape_name(name)}/", "folders without a picture, which are not classes"))
            continue
        if numbers is not None and name not in numbers:
            some = f"{', '.join(islice(numbers, MAX_CLASSES_SHOWN))}{', ...' * (len(numbers) > MAX_CLASSES_SHOWN)}"
            raise UserError(f"{root / name}: no such class with images in {train} ({some})")
        names += [f"{place}/{picture}" for picture in pictures]
        labels.append(np.full(len(pictures), len(present) if numbers is None else numbers[name], dtype=np.int64))
        present.append(name)
    return present if classes is None else classes, names, np.concatenate(labels), items


def beside_classes(names: list[str]) -> list[PassedOverItem]:
    """Return the items of pictures beside the folders of classes."""
    return [PassedOverItem(escape_name(name), "pictures beside the folders of classes", True) for name in names]


def file_sizes(root: Path, place: str, names: list[str]) -> list[tuple[str, int]]:
    """Return files with their sizes in bytes, to notice changed ones; place: name of `root` in the result."""
    return [(f"{place}/{name}", _size(root / name)) for name in names]


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise UserError(
            f"{path}: was there a moment ago ({error.strerror}); submit when nobody changes the folder"
        ) from None
