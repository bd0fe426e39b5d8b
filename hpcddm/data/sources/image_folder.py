"""A folder of images: <folder>/train and <folder>/heldout, each with a folder per class or the images alone.

Classes are numbered in alphabetical order. A table beside them, captions.csv (columns `file`, `caption`) or
captions.jsonl (an object with both keys on each line), gives every image of a split its caption; `file` is relative to
the split's folder. `val` is a synonym of `heldout`.
"""

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
from PIL import Image

from hpcddm.data.sources.base import SPLITS, Record, Source, Split
from hpcddm.data.sources.settings import SourceSettings
from hpcddm.errors import UserError, require
from hpcddm.rundir import atomic
from hpcddm.schema import PathSetting

EXTENSIONS = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
FOLDERS = {"train": ("train",), "heldout": ("heldout", "val")}
"""Valid names for the folder of each split."""
TABLES = ("captions.csv", "captions.jsonl")


class Settings(SourceSettings):
    """Folder that holds `train` and `heldout`, or `val`."""

    folder: PathSetting


class FolderSplit(Split):
    """Image files of one split."""

    def __init__(self, folder: Path, split: str) -> None:
        self.split, self.root = split, _split_folder(folder, split)
        # The training folders number the classes of both splits: a class may have no held-out images.
        self.class_names = _class_names(_split_folder(folder, "train"))
        self.files, self.labels = _by_class(self.root, self.class_names) if self.class_names else _alone(self.root)
        self.table = _table(self.root)
        captions = {} if self.table is None else _captions(self.table)
        self.captions = [captions.get(path.relative_to(self.root).as_posix()) for path in self.files]
        self.has_captions = self.table is not None
        for path, caption in zip(self.files, self.captions, strict=True):
            if self.has_captions and caption is None:
                raise UserError(f"{self.table}: no caption of {path.relative_to(self.root)}; every image needs one")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Record:
        path = self.files[number]
        try:
            with Image.open(path) as image:
                image.load()
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise UserError(f"{path}: no readable image ({error}); remove or replace it") from None
        # A dot would end a WebDataset key; the position is no part of it, for an image more must rename no other.
        name = "-".join(path.relative_to(self.root).parts).replace(".", "_")
        label = None if self.labels is None else int(self.labels[number])
        return Record(f"{self.split}-{name}", image, label, self.captions[number])


def _by_class(root: Path, class_names: list[str]) -> tuple[list[Path], np.ndarray]:
    """List the images of a split that has a folder per class, and their classes."""
    classes = {name: label for label, name in enumerate(class_names)}
    files, labels = [], []
    for name in _class_names(root):
        if name not in classes:
            raise UserError(f"{root / name}: no such class in {root.parent / 'train'} ({', '.join(classes)})")
        pictures = _pictures(root / name)
        files += pictures
        labels += [classes[name]] * len(pictures)
    if not files:
        raise UserError(f"data.source.folder: {root}/<class>/ holds no images ({', '.join(sorted(EXTENSIONS))})")
    return files, np.array(labels, dtype=np.int64)


def _alone(root: Path) -> tuple[list[Path], None]:
    """List the images of a split without classes."""
    files = _pictures(root)
    if not files:
        raise UserError(
            f"data.source.folder: {root} holds neither images ({', '.join(sorted(EXTENSIONS))}) nor folders of classes"
        )
    return files, None


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in EXTENSIONS)


def _split_folder(folder: Path, split: str) -> Path:
    candidates = [folder / name for name in FOLDERS[split]]
    there = [path for path in candidates if path.is_dir()]
    if len(there) > 1:
        names = " and ".join(str(path) for path in there)
        raise UserError(f"data.source.folder: {names} both hold {split} images; rename or remove one of them")
    if not there:
        names = " or ".join(FOLDERS["heldout"])
        raise UserError(
            f"data.source.folder: {candidates[0]} is no folder; there must be {folder}/train and {folder}/{names}"
        )
    return there[0]


def _class_names(root: Path) -> list[str]:
    return sorted(place.name for place in root.glob("[!.]*") if place.is_dir())


def _table(root: Path) -> Path | None:
    """Return the table of captions of a split's folder; None without one."""
    there = [root / name for name in TABLES if (root / name).is_file()]
    if len(there) > 1:
        raise UserError(f"{there[0]} and {there[1]}: two tables of captions; remove one of them")
    return there[0] if there else None


def _captions(table: Path) -> dict[str, str]:
    """Read a table of captions, by the images' files."""
    try:
        # Some programs begin a file with a mark.
        with open(table, newline="", encoding="utf-8-sig") as file:
            parsed = csv.DictReader(file) if table.suffix == ".csv" else map(json.loads, filter(str.strip, file))
            rows = [(row["file"], row["caption"]) for row in parsed]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{table}: no table of images with `file` and `caption` in every row ({reason})") from None
    captions: dict[str, str] = {}
    for name, caption in rows:
        # A row of a CSV file that is too short has None there.
        require(isinstance(name, str) and isinstance(caption, str), f"{table}: {name}: {caption!r} is no caption")
        require(name not in captions, f"{table}: {name} stands there twice; an image has one caption")
        captions[name] = caption
    return captions


class ImageFolder(Source[Settings]):
    """No image is opened until it is accessed."""

    def open_split(self, split: str) -> FolderSplit:
        return FolderSplit(Path(self.settings.folder), split)

    def content(self) -> str:
        """Hash the names and sizes of all images: reading a million of them at every submit would take too long.

        Captions are hashed whole.
        """
        folder, splits = self.settings.folder, [self.open_split(split) for split in SPLITS]
        files = [(str(path.relative_to(folder)), path.stat().st_size) for split in splits for path in split.files]
        tables = [atomic.sha256(split.table) for split in splits if split.table is not None]
        return hashlib.sha256(repr([*files, *tables]).encode()).hexdigest()
