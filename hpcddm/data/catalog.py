"""Catalog of a run: the numbers 0 ... N - 1 of the samples of each split, and where their columns and tars lie."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from hpcddm.config import paths, variants
from hpcddm.config.data import DataSettings
from hpcddm.config.schema import validate
from hpcddm.data.columns import Column, Numbers, RaggedColumn, TextColumn, counted
from hpcddm.errors import UserError
from hpcddm.files import atomic, reading
from hpcddm.files.reading import Unreadable
from hpcddm.runs.files import CATALOG_FILE
from hpcddm.runs.layout import RunDir
from hpcddm.runs.ranges import split_of
from hpcddm.runs.unit_keys import CATALOG

N = TypeVar("N", bound=Numbers)
Folders = Callable[[], Mapping[str | None, Path]]
"""Function that returns the folders of adopted tars by the names of their collections."""
SAMPLES_AT_ONCE, TEXTS_AT_ONCE = 65536, 8192
"""Samples whose values, and whose texts, are in memory together."""
TEXTS = frozenset({"key", "caption"})
"""Names of the columns of texts."""


@dataclass(frozen=True)
class Part:
    """Samples of one range of tars."""

    name: str
    """Name of the range, which is that of its unit in every stage that goes by ranges."""
    file: str
    """Columns of its samples, relative to the run."""
    samples: int
    digest: str
    """Digest of tars and columns."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a path outside of the run, and for a number below zero."""
        reading.require_inside(self.name)
        reading.require_inside(self.file)
        reading.require_counts(self.samples)


@dataclass(frozen=True)
class Tar:
    """A tar of samples."""

    file: str
    """Its path, relative to the run; that of an adopted tar is relative to its collection's folder."""
    size: int
    """Its bytes, by which a tar that is torn is recognised when it is opened."""
    changed: int | None = None
    """Time of the last change of an adopted tar, in seconds since 1970; None for one that the run has written."""
    sha256: str | None = None
    """Digest of an adopted tar where its source's `digests` asks for it."""
    collection: str | None = None
    """Name of the collection of an adopted tar, where it has one."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a path that leads out of its folder, and for a size below zero."""
        reading.require_inside(self.file)
        reading.require_counts(self.size)


@dataclass(frozen=True)
class PictureForm:
    """Form in which the pictures of adopted tars, of any kind and size, are seen."""

    channels: int
    size: int
    transform: dict[str, Any]
    """Settings of the transform that makes a square of a picture."""


@dataclass(frozen=True)
class SplitEntry:
    """Entry of one split in the catalog's file; samples are numbered through the parts, tars through the tars."""

    columns: list[str]
    tars: list[Tar]
    parts: list[Part]
    form: PictureForm | None = None
    """None for tars of pictures that have the form in which they are seen."""


class Catalog:
    """Samples of one split by number; a column is mapped when it is asked for."""

    def __init__(self, root: Path, entry: SplitEntry, folders: Folders | None = None) -> None:
        """root: folder to which files of the run, or of a copy, are relative; folders: of adopted tars."""
        self._root, self._entry, self._folders = root, entry, folders or (lambda: {None: root})
        self.count = sum(part.samples for part in entry.parts)

    def __len__(self) -> int:
        return self.count

    @property
    def split(self) -> str | None:
        """Split whose samples they are; None without ranges."""
        return split_of(f"shard/{self._entry.parts[0].name}") if self._entry.parts else None

    @property
    def form(self) -> PictureForm | None:
        """Form in which the pictures are seen; None where they have it."""
        return self._entry.form

    def tar(self, number: int) -> tuple[Path, Tar]:
        """Return the path of a tar and its entry, by its number in the split."""
        tar = self._entry.tars[number]
        if tar.changed is None:
            return self._root / tar.file, tar
        folders = self._folders()
        if tar.collection not in folders:
            raise UserError(f"data.source: has no collection {tar.collection}, of which the run has tars; submit again")
        return folders[tar.collection] / tar.file, tar

    def seen_in(self, form: PictureForm | None) -> "Catalog":
        """Return the same samples, with their pictures seen in a form."""
        return Catalog(self._root, replace(self._entry, form=form), self._folders)

    @property
    def _filled(self) -> list[Part]:
        """Parts with samples: the columns of others may lack what these have."""
        return [part for part in self._entry.parts if part.samples]

    @property
    def files(self) -> list[str]:
        """Files of tars and columns, relative to the run, or to the folder of a copy."""
        return [tar.file for tar in self._entry.tars] + [part.file for part in self._entry.parts]

    @property
    def columns(self) -> list[str]:
        """Names of the columns that `column` and `texts` map."""
        return self._entry.columns

    def has(self, name: str) -> bool:
        """Tell if a column of this name is there: only some data have `label` and `caption`."""
        return name in self._entry.columns

    def column(self, name: str) -> Column:
        """Map one of the columns tar, offset, size, crc32, label; raises `UserError` naming a file that is damaged."""
        return Column(name, {self._root / part.file: part.samples for part in self._filled})

    def texts(self, name: str) -> TextColumn:
        """Map one of the columns of texts, `key` and `caption`; raises `UserError` naming a file that is damaged."""
        return TextColumn(name, {self._root / part.file: part.samples for part in self._filled})

    def rows(self, name: str, numbers: Numbers) -> np.ndarray | list[str]:
        """Copy the rows of some samples, of a column of values or of texts."""
        return (self.texts(name) if name in TEXTS else self.column(name)).gather(numbers)

    def made_by(self, stage: str, file: str, name: str) -> Column:
        """Map a column that the units of a stage made, each that of its range; raises `UserError` as `column` does."""
        return Column(name, {self._root / stage / part.name / file: part.samples for part in self._filled})

    def ragged_made_by(self, stage: str, file: str, name: str) -> RaggedColumn:
        """Map a column of several rows for every sample, as `made_by`."""
        return RaggedColumn(name, {self._root / stage / part.name / file: part.samples for part in self._filled})

    def numbers_of(self, part: str) -> range:
        """Return the numbers of the samples of a range."""
        start = 0
        for entry in self._entry.parts:
            if entry.name == part:
                return range(start, start + entry.samples)
            start += entry.samples
        raise KeyError(f"no range {part} in the catalog")

    def digest(self, numbers: Numbers) -> str:
        """Hash key, size and CRC-32 of the image's file, class and caption of some samples in their order.

        The same images give the same digest, in whatever tars they lie, and others another one.
        """
        hashed, keys = hashlib.sha256(), self.texts("key")
        files = [self.column(name) for name in ("size", "crc32")]
        labels = self.column("label") if self.has("label") else None
        captions = self.texts("caption") if self.has("caption") else None
        for block in blocks_of(numbers, TEXTS_AT_ONCE):
            nothing = [""] * len(block)
            columns = (
                keys.gather(block),
                *(column.gather(block).tolist() for column in files),
                nothing if labels is None else labels.gather(block).tolist(),
                nothing if captions is None else captions.gather(block),
            )
            samples = ("\0".join(map(str, sample)) for sample in zip(*columns, strict=True))
            hashed.update("".join(f"{sample}\0" for sample in samples).encode(errors="surrogateescape"))
        return hashed.hexdigest()

    def described(self, numbers: Numbers, num_classes: int | None) -> dict[str, Any]:
        """Describe some samples: `samples`, their number, and with classes `class_counts`."""
        described: dict[str, Any] = {"samples": len(numbers)}
        if num_classes is not None:
            labels, counts = self.column("label"), np.zeros(num_classes, dtype=np.int64)
            for block in blocks_of(numbers):
                counts += counted(labels, block, num_classes)
            described["class_counts"] = counts.tolist()
        return described


def open_catalog(run: RunDir, split: str) -> Catalog:
    """Open the catalog of a split of a run; raises `UserError` when the file is missing or torn."""
    return read_catalog(run.unit(CATALOG) / CATALOG_FILE, split, run.root, _adopted_folders(run))


def _adopted_folders(run: RunDir) -> Folders:
    """Return a function that reads, once, where the experiment of a run has the collections of adopted tars."""

    @cache
    def folders() -> dict[str | None, Path]:
        from hpcddm.data.sources.base import TarSource

        experiment = reading.need_json(run.experiment)
        source = validate(DataSettings, experiment.get("data", {}), str(run.experiment)).source
        return variants.create(TarSource, paths.located(source, run.root)).folders()

    return folders


def read_catalog(file: Path, split: str, root: Path, folders: Folders | None = None) -> Catalog:
    """Read the catalog of a split from a file that names others relative to `root`, and adopted tars to `folders`.

    Raises `UserError` when it is missing or torn.
    """
    try:
        entries: dict[str, SplitEntry] = reading.need_json(file, dict[str, SplitEntry])
        return Catalog(root, entries[split], folders)
    except (KeyError, Unreadable) as error:
        reason = error.reason if isinstance(error, Unreadable) else f"has no split {split}"
        raise UserError(f"{file}: {reason}; remove {file.parent}/manifest.json and submit again") from None


def write_catalog(path: Path, entries: dict[str, SplitEntry]) -> None:
    """Write the catalog of all splits."""
    values = {split: asdict(entry) for split, entry in entries.items()}
    for tar in (tar for entry in values.values() for tar in entry["tars"] if tar["collection"] is None):
        # So the file of a run without collections is that of a run before there were any, and so is its digest.
        del tar["collection"]
    atomic.write_json(path, values)


def stamp_of(path: Path) -> tuple[int, int]:
    """Return size in bytes and time of the last change in seconds, by which a tar that was changed is recognised.

    Raises `UserError` when there is none.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    return status.st_size, int(status.st_mtime)


def blocks_of(numbers: N, size: int = SAMPLES_AT_ONCE) -> Iterator[N]:
    """Split numbers into consecutive blocks."""
    for start in range(0, len(numbers), size):
        yield cast(N, numbers[start : start + size])
