"""A folder of images: <folder>/train/<class>/* and <folder>/heldout/<class>/*; classes in alphabetical order.

`val` is a synonym of `heldout`.
"""

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image

from hpcddm.data.sources.base import SPLITS, Record, Source, Split
from hpcddm.data.sources.settings import SourceSettings
from hpcddm.errors import UserError

EXTENSIONS = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
FOLDERS = {"train": ("train",), "heldout": ("heldout", "val")}
"""Valid names for the folder of each split."""


class Settings(SourceSettings):
    """Folder that holds `train` and `heldout`, or `val`."""


class FolderSplit(Split):
    """Image files of one split."""

    def __init__(self, folder: Path, split: str) -> None:
        root = _split_folder(folder, split)
        self.split = split
        # The training folders number the classes of both splits: a class may have no held-out images.
        self.class_names = _class_names(folder / "train")
        classes = {name: label for label, name in enumerate(self.class_names)}
        self.files: list[tuple[int, Path]] = []
        for name in _class_names(root):
            if name not in classes:
                raise UserError(f"{root / name}: no such class in {folder / 'train'} ({', '.join(classes)})")
            pictures = [path for path in (root / name).iterdir() if path.suffix.lower() in EXTENSIONS]
            self.files += [(classes[name], path) for path in sorted(pictures)]
        if not self.files:
            raise UserError(f"data.source.folder: {root}/<class>/ holds no images ({', '.join(sorted(EXTENSIONS))})")
        self.labels = np.array([label for label, _ in self.files], dtype=np.int64)

    def __getitem__(self, number: int) -> Record:
        label, path = self.files[number]
        try:
            with Image.open(path) as image:
                image.load()
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise UserError(f"{path}: no readable image ({error}); remove or replace it") from None
        # A dot would end a WebDataset key; the position is no part of it, for an image more must rename no other.
        name = f"{path.parent.name}-{path.name}".replace(".", "_")
        return Record(f"{self.split}-{name}", image, label)


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


class ImageFolder(Source[Settings]):
    """No image is opened until it is accessed."""

    def open_split(self, split: str) -> FolderSplit:
        return FolderSplit(Path(self.settings.folder), split)

    def content(self) -> str:
        """Hash the names and sizes of all images: reading a million of them at every submit would take too long."""
        folder = self.settings.folder
        paths = [path for split in SPLITS for _, path in self.open_split(split).files]
        files = [(str(path.relative_to(folder)), path.stat().st_size) for path in paths]
        return hashlib.sha256(repr(files).encode()).hexdigest()
