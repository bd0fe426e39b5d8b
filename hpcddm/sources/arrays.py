"""Images in arrays of an HDF5 or npz file: (N, H, W), or (N, H, W, C) of 1, 3 or 4 channels, uint8.

A key is the position of an image: images may be appended, but not removed from the middle.
"""

import hashlib
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from hpcddm.config.schema import PathSetting
from hpcddm.config.sources import HELDOUT_SHARE, HeldoutFile, SourceSettings
from hpcddm.data.tars.record import Record
from hpcddm.errors import UserError, require
from hpcddm.runs.passed_over import PassedOverItem, escape_name
from hpcddm.sources import array_files, array_proposals
from hpcddm.sources.array_files import CHANNELS
from hpcddm.sources.base import Source, Split
from hpcddm.sources.folders.proposal import SourceProposal
from hpcddm.sources.folders.survey import FolderSurvey
from hpcddm.sources.heldout_share import is_of_split


class ArraysSettings(SourceSettings):
    """Files, and the names of their arrays; without the name of labels, or of captions, there are none."""

    file: PathSetting
    """File of the training images, or of all images with `heldout: {share: ...}`."""
    heldout: HeldoutFile = HeldoutFile(share=HELDOUT_SHARE)
    images: str = "images"
    labels: str | None = None
    """Array of one class, a number from 0, for every image."""
    captions: str | None = None
    """Array of one text for every image, UTF-8."""
    channels_first: bool = False
    """True for images of shape (N, C, H, W)."""


class ArraysSplit(Split):
    """Images of one split; chosen: their positions in the file."""

    def __init__(self, settings: ArraysSettings, split: str) -> None:
        share, self.class_names = settings.heldout.share, []
        self.prefix = "" if share else f"{split}-"
        self.path = _file(settings, split)
        self.images = array_files.open_rows(self.path, settings.images)
        self.channels_first = settings.channels_first
        _check_images(self.images, settings.channels_first)
        count = self.images.shape[0]
        self.chosen = _positions_in_split(count, share, split)
        require(self.chosen.size > 0, f"{self.images.place}: {count} images, none of them for {split}")
        self.labels = _labels(self.path, settings.labels, count)
        self.labels = None if self.labels is None else self.labels[self.chosen]
        self.captions = _captions(self.path, settings.captions, count)
        self.has_captions = self.captions is not None
        if split == "train" or not share:
            used = (settings.images, settings.labels, settings.captions)
            others = [name for name in array_files.array_names(self.path) if name not in used]
            reason = "arrays that data.source does not name"
            self.passed_over = [PassedOverItem(f"{self.path.name}: {escape_name(name)}", reason) for name in others]

    def __len__(self) -> int:
        return len(self.chosen)

    def key(self, number: int) -> str:
        return f"{self.prefix}{_key(int(self.chosen[number]))}"

    def __getitem__(self, number: int) -> Record:
        position = int(self.chosen[number])
        image = array_files.picture_of(self.images, position, self.channels_first)
        label = None if self.labels is None else int(self.labels[number])
        caption = None if self.captions is None else self.captions.row(position)
        return Record(self.key(number), image, label, caption)


class Arrays(Source[ArraysSettings]):
    """Images and captions are read one by one, labels whole."""

    @classmethod
    def propose(cls, survey: FolderSurvey) -> list[SourceProposal]:
        return array_proposals.propose(survey)

    def open_split(self, split: str) -> ArraysSplit:
        return ArraysSplit(self.settings, split)

    def content_hash(self) -> str:
        """Hash the files, of a large one pieces only."""
        files = dict.fromkeys(_file(self.settings, split) for split in ("train", "heldout"))
        return hashlib.sha256("".join(map(array_files.content_hash, files)).encode()).hexdigest()


def _file(settings: ArraysSettings, split: str) -> Path:
    apart = settings.heldout.file if split == "heldout" else None
    path, key = (Path(settings.file), "file") if apart is None else (Path(apart), "heldout.file")
    require(path.is_file(), f"data.source.{key}: {path} is not a file")
    return path


def _positions_in_split(count: int, share: float | None, split: str) -> Int64[np.ndarray, " n"]:
    """Return the positions of the images of a split."""
    positions = np.arange(count)
    is_chosen = (is_of_split(split, share, _key(position)) for position in range(count))
    return positions[np.fromiter(is_chosen, np.bool_, count)]


def _key(position: int) -> str:
    return f"{position:07d}"


def _check_images(images: array_files.ArrayRows, channels_first: bool) -> None:
    """Raise `UserError` where an array is none of images."""
    shape, stated = images.shape, f"{images.place}: {images.dtype} {images.shape}"
    require(images.dtype == np.uint8, f"{stated}: needs uint8, 0 for black and 255 for white; convert it")
    if channels_first:
        require(
            len(shape) == 4 and shape[1] in CHANNELS, f"{stated}: channels_first needs (N, C, H, W), C of {CHANNELS}"
        )
    elif len(shape) == 4 and shape[3] not in CHANNELS and shape[1] in CHANNELS:
        raise UserError(f"{stated}: looks like (N, C, H, W); set data.source.channels_first: true")
    else:
        is_right = len(shape) == 3 or (len(shape) == 4 and shape[3] in CHANNELS)
        require(is_right, f"{stated}: needs (N, H, W) or (N, H, W, C), C of {CHANNELS}")


def _labels(path: Path, name: str | None, count: int) -> np.ndarray | None:
    if name is None:
        return None
    rows = array_files.open_rows(path, name)
    stated = f"{rows.place}: {rows.dtype} {rows.shape}"
    require(
        rows.dtype.kind in "iu" and rows.shape == (count,), f"{stated}: needs one integer for each of {count} images"
    )
    labels = rows.whole().astype(np.int64)
    require(bool((labels >= 0).all()), f"{rows.place}: {labels.min()} is not a class; classes are numbered from 0")
    return labels


def _captions(path: Path, name: str | None, count: int) -> array_files.ArrayRows | None:
    if name is None:
        return None
    rows = array_files.open_rows(path, name)
    is_text = rows.shape == (count,) and isinstance(rows.row(0), str)
    require(is_text, f"{rows.place}: {rows.dtype} {rows.shape}: needs one text for each of {count} images")
    return rows
