"""A folder of images: <folder>/train/<class>/* and <folder>/heldout/<class>/*; classes in alphabetical order."""

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from hpcddm.config import VariantSettings
from hpcddm.data.record import Record
from hpcddm.errors import UserError

EXTENSIONS = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}


class Settings(VariantSettings):
    """The folder that holds `train` and `heldout`."""

    uncovered = frozenset({"folder"})

    folder: str


class FolderSplit:
    """The image files of one split; `labels` is int64 (N,)."""

    def __init__(self, folder: Path, split: str) -> None:
        root = folder / split
        if not root.is_dir():
            raise UserError(
                f"data.source.folder: {root} is no folder; there must be {folder}/train and {folder}/heldout"
            )
        self.split = split
        classes = sorted(place for place in root.iterdir() if place.is_dir())
        self.files = [
            (label, path)
            for label, place in enumerate(classes)
            for path in sorted(place.iterdir())
            if path.suffix.lower() in EXTENSIONS
        ]
        if not self.files:
            raise UserError(f"data.source.folder: {root}/<class>/ holds no images ({', '.join(sorted(EXTENSIONS))})")
        self.labels = np.array([label for label, _ in self.files], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Record:
        label, path = self.files[number]
        try:
            with Image.open(path) as image:
                image.load()
        except (OSError, UnidentifiedImageError) as error:
            raise UserError(f"{path}: no readable image ({error}); remove or replace it") from None
        # Dots and slashes mean something in a WebDataset key.
        name = f"{path.parent.name}-{path.stem}".replace(".", "_").replace("/", "_")
        return Record(f"{self.split}-{number:07d}-{name}", image, label)


def open_split(settings: Settings, split: str) -> FolderSplit:
    """The split 'train' or 'heldout'; no image is opened until it is asked for.

    Raises `UserError` naming the folder or the file that is missing or wrong.
    """
    return FolderSplit(Path(settings.folder), split)
