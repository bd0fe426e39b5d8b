"""Files of samples that are read in place, such as tars and parquet: their index, and the values of a sample."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hpcddm.data.sample_file import SampleFile, size_and_mtime
from hpcddm.data.tars.tar_index import TarIndex
from hpcddm.errors import require
from hpcddm.files.text_files import EMPTY_CAPTION, is_blank
from hpcddm.runs.passed_over import PassedOverItem

MAX_KEY_LENGTH = 1000
"""Most bytes of a key."""
LACKS = {"label": "no class, others have one", "caption": "no caption, others have one"}
"""Reasons why a sample is broken that lacks a value, by its column, where any sample of the data has it."""
PictureCheck = Callable[[bytes], tuple[int, int]]
"""Function that decodes a picture's file and returns its width and height; raises `ImageError`."""


@dataclass(frozen=True)
class IndexedFile:
    """Samples of one file that can be used, and those that are broken.

    metadata: of every sample, further values by name, with `width` and `height` of a picture that was decoded; entries:
    names of all values, kept or not; broken: (key, reason) of the others; passed_over: contents that belong to none of
    these.
    """

    index: TarIndex
    metadata: list[dict[str, Any]]
    entries: frozenset[str]
    broken: list[tuple[str, str]]
    passed_over: list[PassedOverItem]


class RowGroup(NamedTuple):
    """Rows of a file that are read together: their number, and bytes of their images in memory and as stored."""

    rows: int
    bytes: int
    stored_bytes: int


@dataclass(frozen=True)
class SourceFile(ABC):
    """A file of a collection, with the samples of one split.

    prefix: begins the keys of samples; is_of_split: returns True for the key of a sample of the split; has_digest: True
    to compute the file's SHA-256; folder: the collection's folder, to which `name` is relative; collection: its name,
    or None.
    """

    path: Path
    prefix: str
    is_of_split: Callable[[str], bool]
    has_digest: bool
    folder: Path
    collection: str | None

    @property
    def name(self) -> str:
        """Path in the collection's folder, which may be published."""
        return self.path.relative_to(self.folder).as_posix()

    def entry(self, sha256: str | None = None) -> SampleFile:
        """Return the file as a catalog describes it."""
        return SampleFile(self.name, *size_and_mtime(self.path), sha256, self.collection, self.images_column)

    @property
    def images_column(self) -> str | None:
        """Column that holds the images, whose offsets are then rows; None for offsets in bytes."""
        return None

    def row_groups(self) -> list[RowGroup]:
        """List the groups of rows that are read together; empty for a file whose images have offsets in bytes."""
        return []

    @abstractmethod
    def index(self, check: PictureCheck | None = None, names: Collection[str] = ()) -> IndexedFile:
        """Find the samples of the split.

        Args:
            check: Function that is called with every picture's file; None to read no pictures.
            names: Names of the further values that are kept, which take more memory than all else.

        Raises:
            UserError: The file is damaged, so that nothing tells how many samples it has lost. The message names it.
        """


class UnusableSample(Exception):  # noqa: N818
    """Error with the reason why a sample cannot be used."""


class IndexRow(NamedTuple):
    """A sample: place of its image in the file, class, caption, further values."""

    key: str
    offset: int
    size: int
    crc32: int
    label: int | None
    caption: str | None
    metadata: dict[str, Any]


def complete_index(
    path: Path, rows: list[IndexRow], entries: frozenset[str], broken: list[tuple[str, str]], is_read: bool
) -> IndexedFile:
    """Index the rows of a file; where some have a class or a caption, those without are broken.

    Args:
        path: The file.
        rows: Its usable samples.
        entries: Names of all further values.
        broken: Key and reason of the other samples; receives those that lack a value.
        is_read: True if the pictures have been read.
    """
    has = {name: any(getattr(row, name) is not None for row in rows) for name in LACKS}
    whole = []
    for row in rows:
        reason = next((LACKS[name] for name in LACKS if has[name] and getattr(row, name) is None), None)
        if reason is None:
            whole.append(row)
        else:
            broken.append((row.key, reason))
    index = TarIndex(
        path,
        [row.key for row in whole],
        np.array([row.offset for row in whole], np.uint64),
        np.array([row.size for row in whole], np.uint32),
        np.array([row.label for row in whole], np.int32) if has["label"] else None,
        [row.caption or "" for row in whole] if has["caption"] else None,
        np.array([row.crc32 for row in whole], np.uint32) if is_read else None,
    )
    return IndexedFile(index, [row.metadata for row in whole], entries, broken, [])


def lacking(index: TarIndex, columns: Collection[str]) -> str | None:
    """Return the reason why all samples of a file are broken where others have some columns; None if they are not."""
    missing = (name for name in LACKS if name in columns and name not in valued(index))
    return next((LACKS[name] for name in missing), None) if index.keys else None


def valued(index: TarIndex) -> set[str]:
    """Return the columns of `LACKS` that the samples of a file have."""
    values = {"label": index.labels, "caption": index.captions}
    return {name for name in LACKS if index.keys and values[name] is not None}


def values_of(files: Sequence[IndexedFile], names: Iterable[str]) -> dict[str, list[object]]:
    """Return values of the samples of several files by name, with label and caption; None where a sample has none."""
    columns: dict[str, list[object]] = {
        name: [values.get(name) for file in files for values in file.metadata] for name in names
    }
    for name in ("label", "caption"):
        columns[name] = []
    for index in (file.index for file in files):
        nothing = [None] * len(index.keys)
        columns["label"] += nothing if index.labels is None else index.labels.tolist()
        columns["caption"] += nothing if index.captions is None else index.captions
    return columns


def check_key(key: str) -> None:
    """Raise `UnusableSample` for a key that is too long or not UTF-8."""
    if len(key.encode(errors="surrogateescape")) > MAX_KEY_LENGTH:
        raise UnusableSample(f"its key is longer than {MAX_KEY_LENGTH} bytes")
    require(_is_utf8(key), "its key is not UTF-8", UnusableSample)


def check_size(size: int) -> None:
    """Raise `UnusableSample` for a number of bytes that no image has."""
    require(0 < size < 1 << 32, f"{size} bytes, which is not an image", UnusableSample)


def label_of(value: object) -> int | None:
    """Return the class number in a value; raise `UnusableSample` for anything else."""
    try:
        # JSON's fractions and booleans are not classes; only Python reads 1_0 as 10.
        if isinstance(value, float | bool) or "_" in str(value):
            raise ValueError
        label = None if value is None else int(np.int32(int(value)))  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        raise UnusableSample(f"its class is not a number ({str(value)[:40]!r})") from None
    require(label is None or label >= 0, f"its class is {label}, they are numbered from 0", UnusableSample)
    return label


def caption_of(value: object) -> str | None:
    """Return a caption; raise `UnusableSample` for a value that is not a text, or a blank one."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise UnusableSample(f"its caption is not a text ({str(value)[:40]!r})")
    # JSON can hold one half of a surrogate pair.
    require(_is_utf8(value), "its caption is not UTF-8", UnusableSample)
    require(not is_blank(value), EMPTY_CAPTION, UnusableSample)
    return value


def _is_utf8(text: str) -> bool:
    """Tell if a text can be encoded; bytes of a name that are not UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
