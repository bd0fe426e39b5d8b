"""IDX files, the format of MNIST and Fashion-MNIST: train-* holds the training images, t10k-* the held-out ones."""

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8
from PIL import Image

from hpcddm.config.schema import PathSetting
from hpcddm.config.sources import SourceSettings
from hpcddm.data.tars.record import Record
from hpcddm.errors import UserError, require
from hpcddm.files import atomic
from hpcddm.sources.base import Source, Split
from hpcddm.sources.folders.proposal import SamplePicture, SourceProposal
from hpcddm.sources.folders.survey import FolderSurvey
from hpcddm.sources.listing import list_unused, require_folder

PREFIX = {"train": "train", "heldout": "t10k"}


class IdxSettings(SourceSettings):
    """A folder with four IDX files, plain or gzipped."""

    folder: PathSetting


class IdxSplit(Split):
    """Images and labels of one split; IDX files have no class names."""

    labels: Int64[np.ndarray, " n"]

    def __init__(self, folder: Path, split: str) -> None:
        self.split, self.class_names = split, []
        self.labels = _read(folder, f"{PREFIX[split]}-labels", dimensions=1).astype(np.int64)
        self._folder = folder
        self._images: np.ndarray | None = None
        if split == "train":
            self.passed_over = list_unused(folder, [file.name for file in _files(folder)], "the IDX files")

    def __len__(self) -> int:
        return len(self.labels)

    def key(self, number: int) -> str:
        return f"{self.split}-{number:07d}"

    def __getitem__(self, number: int) -> Record:
        if self._images is None:
            self._images = _read(self._folder, f"{PREFIX[self.split]}-images", dimensions=3)
            if len(self._images) != len(self.labels):
                raise UserError(f"{self._folder}: {len(self._images)} images and {len(self.labels)} labels")
        return Record(self.key(number), Image.fromarray(self._images[number]), int(self.labels[number]))


class Idx(Source[IdxSettings]):
    """Labels are read when a split is opened, images when the first one is accessed."""

    @classmethod
    def propose(cls, survey: FolderSurvey) -> list[SourceProposal]:
        """Propose the first folder with names of MNIST's files."""
        for place, folder in survey.folders.items():
            names = [name for several in folder.names.values() for name in several]
            if any(name.startswith(f"{PREFIX['train']}-images") for name in names):
                return [_proposal(survey.root / place)]
        return []

    def open_split(self, split: str) -> IdxSplit:
        return IdxSplit(Path(self.settings.folder), split)

    def content_hash(self) -> str:
        """Hash the four files."""
        files = _files(Path(self.settings.folder))
        return hashlib.sha256("".join(atomic.sha256(file) for file in files).encode()).hexdigest()


def _files(folder: Path) -> list[Path]:
    return [_find(folder, f"{prefix}-{kind}") for prefix in PREFIX.values() for kind in ("images", "labels")]


def _find(folder: Path, prefix: str) -> Path:
    require_folder("folder", folder)
    matches = sorted(folder.glob(f"{prefix}*"))
    require(matches != [], f"data.source.folder: {folder} holds no file named {prefix}-...")
    return matches[0]


def _read(folder: Path, prefix: str, dimensions: int) -> UInt8[np.ndarray, "..."]:
    path = _find(folder, prefix)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            content = stream.read()
        magic = content[:4]
        shape = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
        values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions)
        if magic != bytes([0, 0, 8, dimensions]) or values.size != np.prod(shape):
            raise ValueError
    except (OSError, EOFError, ValueError, struct.error, zlib.error) as error:
        reason = f" ({error})" if str(error) else ""
        raise UserError(
            f"{path}: no IDX file of unsigned bytes in {dimensions} dimensions, or a torn one{reason}"
        ) from None
    return values.reshape(shape)


def _proposal(folder: Path) -> SourceProposal:
    proposal = SourceProposal("IDX files, as MNIST has them", {"folder": str(folder)}, is_specific=True)
    with proposal.keep_error():
        _files(folder)
        train, heldout = (IdxSplit(folder, split) for split in PREFIX)
        proposal.images = len(train) + len(heldout)
        proposal.class_names = [str(label) for label in range(int(train.labels.max(initial=-1)) + 1)]
        proposal.heldout_of_class = int(np.bincount(heldout.labels, minlength=len(proposal.class_names)).min())
        record = train[0]
        proposal.pictures = [SamplePicture(record.key, record.image)]
    return proposal
