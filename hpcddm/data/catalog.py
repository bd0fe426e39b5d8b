"""Catalog of a run: the samples of each split by number 0 ... N - 1, and the files with their columns and images."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from hpcddm.data.columns import Column, Numbers, RaggedColumn, TextColumn, count_values
from hpcddm.data.sample_file import FILE_DEFAULTS, SampleFile
from hpcddm.errors import UserError
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable

N = TypeVar("N", bound=Numbers)
Folders = Callable[[], Mapping[str | None, Path]]
"""Function that returns the folders of existing tars by the names of their collections."""
SAMPLES_AT_ONCE, TEXTS_AT_ONCE = 65536, 8192
"""Number of samples whose values, or whose texts, are in memory at once."""
TEXTS = frozenset({"key", "caption", "file"})
"""Names of the text columns."""


@dataclass(frozen=True)
class CatalogPart:
    """Samples of one range of tars."""

    name: str
    """Name of the range, and of its unit in every stage whose units are ranges."""
    file: str
    """File with the columns of its samples, relative to the run."""
    samples: int
    digest: str
    """Digest of its tars and columns."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a path outside of the run or a negative number."""
        checked_reads.require_inside(self.name)
        checked_reads.require_inside(self.file)
        checked_reads.require_counts(self.samples)


@dataclass(frozen=True)
class ImageFormat:
    """Channels and size to which the pictures of existing tars, of any kind and size, are converted."""

    channels: int
    size: int
    transform: dict[str, Any]
    """Settings of the transform that turns a picture into a square."""


@dataclass(frozen=True)
class SplitEntry:
    """Entry of one split in the catalog's file; its samples are numbered through the parts, its tars through `tars`."""

    columns: list[str]
    tars: list[SampleFile]
    parts: list[CatalogPart]
    form: ImageFormat | None = None
    """Format to which pictures are converted; None for pictures that already have it."""


class Catalog:
    """Samples of one split by number; a column is memory-mapped when it is first read.

    Args:
        root: Folder to which files of the run, or of a copy, are relative.
        entry: Columns, tars and parts of the split.
        folders: Function that returns the folders of existing tars; None without existing tars.
        split: Name of the split; None for samples that do not belong to a run.

    Examples:
        >>> import tempfile
        >>> from hpcddm.data.column_files import write_columns
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_columns(Path(folder, "0.h5"), {"key": ["cat", "dog"], "label": np.array([3, 5])})
        ...     part = CatalogPart("train-000", "0.h5", samples=2, digest="")
        ...     catalog = Catalog(Path(folder), SplitEntry(columns=["key", "label"], tars=[], parts=[part]))
        ...     catalog.gather("key", [1, 0]), catalog.gather("label", range(2))
        (['dog', 'cat'], array([3, 5]))
    """

    def __init__(self, root: Path, entry: SplitEntry, folders: Folders | None = None, split: str | None = None) -> None:
        """root: folder to which files of the run, or of a copy, are relative; folders: of existing tars."""
        self._root, self._entry, self._folders = root, entry, folders or (lambda: {None: root})
        self.split = split
        """Split whose samples they are; None for samples of no run."""
        self.count = sum(part.samples for part in entry.parts)

    def __len__(self) -> int:
        return self.count

    @property
    def image_format(self) -> ImageFormat | None:
        """Format to which pictures are converted; None for pictures that already have it."""
        return self._entry.form

    def tar(self, number: int) -> tuple[Path, SampleFile]:
        """Return the path and the entry of a tar, or of another file that is read like one.

        Args:
            number: Number of the tar in the split.

        Raises:
            UserError: The source no longer has the collection of the tar.
        """
        tar = self._entry.tars[number]
        if tar.changed is None:
            return self._root / tar.file, tar
        folders = self._folders()
        if tar.collection not in folders:
            raise UserError(f"data.source: has no collection {tar.collection}, but the run uses its tars; submit again")
        return folders[tar.collection] / tar.file, tar

    def source_file(self, name: str) -> Path:
        """Return the path of a picture that is read in the folder of its source.

        Args:
            name: Value of the column `file`: path in the folder of the source, after the name of a folder if there are
                several.
        """
        folders = self._folders()
        first, _, inner = name.partition("/")
        try:
            # A path of another user's run leads nowhere else.
            checked_reads.require_inside(name)
        except ValueError as error:
            raise UserError(f"{self._root}: the catalog has the picture {name!r:.200}, which {error}") from None
        return folders[first] / inner if first in folders else folders[None] / name

    def with_image_format(self, image_format: ImageFormat | None) -> "Catalog":
        """Return the same samples with their pictures converted to another format."""
        return Catalog(self._root, replace(self._entry, form=image_format), self._folders, self.split)

    @property
    def _filled(self) -> list[CatalogPart]:
        """Parts with samples; empty parts may lack columns."""
        return [part for part in self._entry.parts if part.samples]

    @property
    def files(self) -> list[str]:
        """Files of tars and columns, relative to the folder of the run or of a copy."""
        return [tar.file for tar in self._entry.tars] + [part.file for part in self._entry.parts]

    @property
    def columns(self) -> list[str]:
        """Names of the columns that `column` and `texts` map."""
        return self._entry.columns

    def has(self, name: str) -> bool:
        """Return True if there is a column of this name; `label` and `caption` are optional."""
        return name in self._entry.columns

    def column(self, name: str) -> Column:
        """Map one of the columns tar, offset, size, crc32 and label.

        Raises:
            UserError: A file is damaged; the message names it.
        """
        return Column(name, {self._root / part.file: part.samples for part in self._filled})

    def texts(self, name: str) -> TextColumn:
        """Map one of the text columns `key` and `caption`.

        Raises:
            UserError: A file is damaged; the message names it.
        """
        return TextColumn(name, {self._root / part.file: part.samples for part in self._filled})

    def gather(self, name: str, numbers: Numbers) -> np.ndarray | list[str]:
        """Copy the rows of some samples.

        Args:
            name: Column of values or texts.
            numbers: (N,) numbers of samples, in any order.

        Returns:
            Values, (N, ...), or a list of N texts.
        """
        return (self.texts(name) if name in TEXTS else self.column(name)).gather(numbers)

    def values_of(self, name: str, missing: object) -> Callable[[Numbers], list[Any]]:
        """Map a column, and return a function that copies its values, or texts, of some samples.

        Args:
            name: Column of values or texts.
            missing: Value of every sample if the column is missing.

        Raises:
            UserError: A file is damaged; the message names it.
        """
        if not self.has(name):
            return lambda numbers: [missing] * len(numbers)
        if name in TEXTS:
            return self.texts(name).gather
        column = self.column(name)
        return lambda numbers: column.gather(numbers).tolist()

    def column_of_stage(self, stage: str, file: str, name: str) -> Column:
        """Map a column that a stage has computed; each unit of the stage writes the rows of its range.

        Args:
            stage: Name of the stage, such as 'encode'.
            file: Name of the file in each unit's folder.
            name: Name of the column in the file.

        Raises:
            UserError: A file is damaged; the message names it.
        """
        return Column(name, {self._root / stage / part.name / file: part.samples for part in self._filled})

    def ragged_column_of_stage(self, stage: str, file: str, name: str) -> RaggedColumn:
        """Map a column of a stage with several rows per sample; arguments and errors are those of `column_of_stage`."""
        return RaggedColumn(name, {self._root / stage / part.name / file: part.samples for part in self._filled})

    def numbers_in_range(self, range_name: str) -> range:
        """Return the numbers of the samples in a range.

        Raises:
            KeyError: The catalog does not have the range.
        """
        start = 0
        for entry in self._entry.parts:
            if entry.name == range_name:
                return range(start, start + entry.samples)
            start += entry.samples
        raise KeyError(f"no range {range_name} in the catalog")

    def digest(self, numbers: Numbers) -> str:
        """Hash key, class, caption, and size and CRC-32 of the image file of some samples, in their order.

        The digest does not depend on the tars that hold the samples.

        Args:
            numbers: (N,) numbers of samples.

        Returns:
            SHA-256 in hexadecimal.
        """
        hashed = hashlib.sha256()
        columns_of = [self.values_of(name, "") for name in ("key", "size", "crc32", "label", "caption")]
        for block in split_into_blocks(numbers, TEXTS_AT_ONCE):
            columns = [values_of(block) for values_of in columns_of]
            samples = ("\0".join(map(str, sample)) for sample in zip(*columns, strict=True))
            hashed.update("".join(f"{sample}\0" for sample in samples).encode(errors="surrogateescape"))
        return hashed.hexdigest()

    def summary(self, numbers: Numbers, num_classes: int | None) -> dict[str, Any]:
        """Count samples and classes.

        Args:
            numbers: (N,) numbers of samples.
            num_classes: Number of classes; None for samples without classes.

        Returns:
            'samples', their number, and with classes 'class_counts', the number of samples of each class.
        """
        counted: dict[str, Any] = {"samples": len(numbers)}
        if num_classes is not None:
            labels, counts = self.column("label"), np.zeros(num_classes, dtype=np.int64)
            for block in split_into_blocks(numbers):
                counts += count_values(labels, block, num_classes)
            counted["class_counts"] = counts.tolist()
        return counted


def read_catalog(file: Path, split: str, root: Path, folders: Folders | None = None) -> Catalog:
    """Read the catalog of a split.

    Args:
        file: JSON file of the catalog.
        split: Name of the split.
        root: Folder to which the files in the catalog are relative.
        folders: Function that returns the folders of existing tars; None without existing tars.

    Raises:
        UserError: The file is missing or damaged, or does not have the split.
    """
    try:
        entries: dict[str, SplitEntry] = checked_reads.read_required_json(file, dict[str, SplitEntry])
        return Catalog(root, entries[split], folders, split)
    except (KeyError, Unreadable) as error:
        reason = error.reason if isinstance(error, Unreadable) else f"has no split {split}"
        raise UserError(f"{file}: {reason}; remove {file.parent}/manifest.json and submit again") from None


def catalog_as_json(entries: dict[str, SplitEntry]) -> dict[str, Any]:
    """Return the catalog of all splits as it is written to a file."""
    values = {split: asdict(entry) for split, entry in entries.items()}
    for tar in (tar for entry in values.values() for tar in entry["tars"]):
        # A catalog of plain tars has the same bytes, and digest, whatever kinds of files there are besides.
        for name in ("collection", "column"):
            if tar[name] == FILE_DEFAULTS[name]:
                del tar[name]
    return values


def split_into_blocks(numbers: N, size: int = SAMPLES_AT_ONCE) -> Iterator[N]:
    """Split numbers into consecutive blocks of `size`; the last one may be smaller."""
    for start in range(0, len(numbers), size):
        yield cast(N, numbers[start : start + size])
