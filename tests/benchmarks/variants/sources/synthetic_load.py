"""Invented samples for load tests of what is larger than any collection at hand: catalog, columns, lists, reading.

Keys and captions, whose words are Zipf-distributed, are invented; the pictures are those of a few real tars, again and
again. The encoder of the same name invents features. Nothing can be learned from such data.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np

from hpcddm.config.schema import PathSetting, Positive
from hpcddm.config.sources import SourceSettings
from hpcddm.data.sample_file import size_and_mtime
from hpcddm.data.tars.tar_index import TarIndex, checksums
from hpcddm.data.tars.tar_layout import TarLayout
from hpcddm.errors import require
from hpcddm.runs.passed_over import PassedOverItem
from hpcddm.sources import listing
from hpcddm.sources.base import SPLITS, InPlaceSource
from hpcddm.sources.source_files import IndexedFile, PictureCheck
from hpcddm.sources.tars.existing_tars import SourceTar
from hpcddm.sources.unindexed_split import UnindexedSplit

FEWEST_WORDS, MOST_WORDS = 4, 16
"""Number of words of a caption."""


class Settings(SourceSettings):
    """Folder of the real tars, numbers of invented samples and tars, size of the vocabulary."""

    uses_existing_tars: ClassVar[bool] = True

    folder: PathSetting
    samples: Positive
    heldout_samples: Positive = 10_000
    samples_per_tar: Positive = 10_000
    words: Positive = 50_000

    def source_folders(self) -> dict[str | None, Path]:
        """Return the folder of the real tars."""
        return {self.collection: Path(self.folder)}


@dataclass(frozen=True)
class InventedTar(SourceTar):
    """Tar of invented samples, whose pictures are those of the real tar in turn; no picture is decoded."""

    seed: tuple[int, ...]
    samples: int
    words: int

    def index(self, check: PictureCheck | None = None, names: Collection[str] = ()) -> IndexedFile:
        """Invent the samples; nothing of their pictures is read but places and CRC-32, so nothing is checked."""
        real = SourceTar(self.path, "", lambda key: True, False, self.folder, None, self.layout).index().index
        require(real.keys != [], f"{self.path}: has no pictures; data.source.folder needs tars of real ones")
        rows = np.arange(self.samples) % len(real.keys)
        index = TarIndex(
            self.path,
            [f"{self.prefix}{number:06d}" for number in range(self.samples)],
            real.offsets[rows],
            real.sizes[rows],
            labels=None,
            captions=captions(np.random.default_rng(self.seed), self.samples, self.words),
            crc32=checksums(real)[rows],
        )
        return IndexedFile(index, [{}] * self.samples, frozenset(), [], [])


class InventedSplit(UnindexedSplit):
    """The invented samples of one split, seen through the first real tar."""

    def __init__(self, tars: Sequence[InventedTar], beside: Sequence[PassedOverItem]) -> None:
        super().__init__(tars, 1.0, beside)
        self.has_captions, self._samples = True, sum(tar.samples for tar in tars)

    def __len__(self) -> int:
        return self._samples

    def keys(self, prefix: str, tars: int) -> list[str]:
        """List none: no table has a row for what is invented."""
        return []


class SyntheticLoad(InPlaceSource[Settings]):
    """Invented tars, each of which lies in one of the real ones."""

    def open_split(self, split: str) -> InventedSplit:
        return InventedSplit(self._invented(split), self.unused_files() if split == "train" else [])

    def tars(self, split: str) -> list[SourceTar]:
        return list(self._invented(split))

    def unused_files(self) -> list[PassedOverItem]:
        return listing.list_unused(Path(self.settings.folder), [path.name for path in self._real()], "the tars")

    def content_hash(self) -> str:
        """Hash what is invented, and path, size and time of the last change of the real tars."""
        seen = [(path.name, *size_and_mtime(path)) for path in self._real()]
        return hashlib.sha256(repr((self.settings.model_dump(exclude={"folder"}), seen)).encode()).hexdigest()

    def _invented(self, split: str) -> list[InventedTar]:
        own, real = self.settings, self._real()
        total = own.samples if split == "train" else own.heldout_samples
        return [
            InventedTar(
                real[number % len(real)],
                f"{self.prefix}{split}-{number:06d}-",
                is_of_split=lambda key: True,
                has_digest=False,
                folder=Path(own.folder),
                collection=own.collection,
                layout=TarLayout(),
                seed=(SPLITS.index(split), number),
                samples=min(own.samples_per_tar, total - number * own.samples_per_tar),
                words=own.words,
            )
            for number in range(-(-total // own.samples_per_tar))
        ]

    def _real(self) -> list[Path]:
        real = sorted(Path(self.settings.folder).glob("*.tar"))
        require(real != [], f"data.source.folder: {self.settings.folder} has no tars of real pictures")
        return real


def captions(generator: np.random.Generator, count: int, words: int) -> list[str]:
    """Invent captions of `FEWEST_WORDS` to `MAX_WORDS` words, of which that of rank r has a probability ~ 1 / r."""
    ends = np.cumsum(generator.integers(FEWEST_WORDS, MOST_WORDS, count, endpoint=True))
    vocabulary, weights = _vocabulary(words)
    ranks = np.searchsorted(weights, generator.random(ends[-1]) * weights[-1])
    sequence = [vocabulary[rank] for rank in ranks.tolist()]
    return [" ".join(sequence[start:end]) for start, end in pairwise([0, *ends.tolist()])]


@cache
def _vocabulary(words: int) -> tuple[list[str], np.ndarray]:
    """Return the words by rank, and the sums of the first 1, 2, ... weights."""
    return [f"word{rank}" for rank in range(1, words + 1)], np.cumsum(1 / np.arange(1, words + 1))
