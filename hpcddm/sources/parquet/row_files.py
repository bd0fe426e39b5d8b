"""Files with a row per sample, parquet and Arrow, that are read in place."""

import zlib
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpcddm.data.image_decoding import ImageError
from hpcddm.data.row_groups import values_of_column
from hpcddm.errors import UserError
from hpcddm.files.text_files import normalise
from hpcddm.runs.passed_over import escape_name
from hpcddm.sources.source_files import (
    IndexedFile,
    IndexRow,
    PictureCheck,
    SourceFile,
    UnusableSample,
    caption_of,
    check_key,
    check_size,
    complete_index,
    label_of,
)

MAX_SHOWN = 60
"""Most characters of a value that a reason quotes."""
EMBED = "save the data set with its images in it, or fetch them (img2dataset) and take webdataset"
"""Advice about a file that only names its images."""


class ColumnRoles(NamedTuple):
    """Columns of a file by what they mean.

    image: column of the images; is_struct: True if its values are structs with the fields `bytes` and `path`; caption:
    column of the caption, with the names of inner fields after dots; caption_item: number of the caption to take of a
    list; key: column of the keys, None to number the rows; class_texts: classes in their order, if the label is a text.
    """

    image: str
    is_struct: bool
    label: str | None
    caption: str | None
    caption_item: int | None
    key: str | None
    class_texts: tuple[str, ...] = ()

    @property
    def bytes_column(self) -> str:
        """Path of the column that holds the bytes of the images."""
        return f"{self.image}.bytes" if self.is_struct else self.image

    @property
    def others(self) -> list[str]:
        """Paths of the other columns that describe a sample."""
        captions = None if self.caption is None else self.caption.partition(".")[0]
        path = f"{self.image}.path" if self.is_struct else None
        return [name for name in (path, self.label, captions, self.key) if name is not None]


class Row(NamedTuple):
    """One row: its number, the buffer with the bytes of its image, and the other columns by name."""

    number: int
    buffer: Any
    values: dict[str, Any]


@dataclass(frozen=True)
class RowFile(SourceFile):
    """A file with a row per sample.

    roles: the meaning of its columns; stem: its part of the keys of rows without a key of their own.
    """

    roles: ColumnRoles
    stem: str

    @property
    @abstractmethod
    def schema(self) -> Any:
        """Schema of pyarrow."""

    @property
    @abstractmethod
    def row_count(self) -> int:
        """Number of rows."""

    @abstractmethod
    def rows(self, columns: Collection[str], start: int = 0) -> Iterator[Row]:
        """Yield the rows from one on.

        Args:
            columns: Paths of the columns to read besides that of the images.
            start: Number of the first row.

        Raises:
            UserError: The file is damaged, or lacks a column; the message names it.
        """

    @abstractmethod
    def column(self, name: str) -> Any:
        """Return one column as an array of pyarrow without reading the others; errors are those of `rows`."""

    def keys(self) -> list[str]:
        """List the keys of all rows without reading images; empty texts for keys that are not texts."""
        if self.roles.key is None:
            return [f"{self.stem}/{number}" for number in range(self.row_count)]
        return [key if isinstance(key, str) else "" for key in values_of_column(self.column(self.roles.key))]

    @abstractmethod
    def locator(self) -> Callable[[Row], int]:
        """Return a function that finds the offset of a row's image for a training; rows come in ascending order."""

    def index(self, check: PictureCheck | None = None, names: Collection[str] = ()) -> IndexedFile:
        """Find the samples of the split, as the base says; the pictures are always read."""
        rows: list[IndexRow] = []
        broken: list[tuple[str, str]] = []
        locate = self.locator()
        for row in self.rows([*self.roles.others, *names]):
            key = self.prefix + self.key_of(row)
            if not self.is_of_split(key):
                continue
            try:
                self._check_key(row)
                check_key(key)
                content = self.content_of(row)
                label, caption = self.label(row), self.caption(row)
                metadata = {name: row.values.get(name) for name in names}
                if check is not None:
                    metadata["width"], metadata["height"] = check(content)
            except (UnusableSample, ImageError) as reason:
                broken.append((escape_name(key), str(reason)))
            else:
                rows.append(IndexRow(key, locate(row), len(content), zlib.crc32(content), label, caption, metadata))
        entries = frozenset(names) | ({"width", "height"} if check is not None else set())
        return complete_index(self.path, rows, entries, broken, is_read=True)

    def key_of(self, row: Row) -> str:
        """Return the key of a row, without the collection's prefix."""
        own = None if self.roles.key is None else row.values[self.roles.key]
        # A row whose own key is missing is broken, and is named by its number.
        return own if isinstance(own, str) and own else f"{self.stem}/{row.number}"

    def content_of(self, row: Row) -> bytes:
        """Return the bytes of a row's image; raise `UnusableSample` for a row without any."""
        content: bytes = row.buffer.to_pybytes() if row.buffer is not None else b""
        if content:
            check_size(len(content))
            return content
        path = row.values.get(f"{self.roles.image}.path") if self.roles.is_struct else None
        if not path:
            raise UnusableSample("no image")
        what = "the address" if "://" in path else "the path"
        raise UnusableSample(f"no bytes of an image but only {what} {path[:MAX_SHOWN]}; {EMBED}")

    def label(self, row: Row) -> int | None:
        """Return the class of a row; raise `UnusableSample` for one that cannot be used."""
        value = None if self.roles.label is None else row.values[self.roles.label]
        if value is not None and self.roles.class_texts:
            # Found in the same columns, so it is one of them.
            return bisect_left(self.roles.class_texts, value)
        return label_of(value)

    def caption(self, row: Row) -> str | None:
        """Return the caption of a row; raise `UnusableSample` for one that cannot be used."""
        if self.roles.caption is None:
            return None
        value = _inner(row.values, self.roles.caption.split("."))
        if isinstance(value, list):
            value = self._choose(value)
        caption = caption_of(value)
        return None if caption is None else normalise(caption)

    def _choose(self, captions: list[Any]) -> Any:
        number = self.roles.caption_item
        if number is None and len(captions) != 1:
            raise UnusableSample(
                f"{len(captions)} captions; data.source.caption_item names the one to take, 0 the first"
            )
        if len(captions) <= (number or 0):
            raise UnusableSample(f"{len(captions)} captions, and data.source.caption_item is {number}")
        return captions[number or 0]

    def _check_key(self, row: Row) -> None:
        """Raise `UnusableSample` for a row without a key where a column holds the keys."""
        own = "" if self.roles.key is None else row.values[self.roles.key]
        if self.roles.key is not None and not (own and isinstance(own, str)):
            raise UnusableSample(f"its {self.roles.key} is not a text ({str(own)[:MAX_SHOWN]})")


def _inner(value: Any, path: list[str]) -> Any:
    """Return the value at a path of fields; of a list, the list of its items' values."""
    for place, name in enumerate(path):
        if isinstance(value, list):
            return [_inner(item, path[place:]) for item in value]
        value = value.get(name) if isinstance(value, dict) else None
    return value


def require_columns(file: RowFile, names: Collection[str], present: Collection[str]) -> None:
    """Raise `UserError` for a column that a file lacks, such as one of another version of the data set."""
    missing = [name for name in names if name not in present and name.partition(".")[0] not in present]
    if missing:
        raise UserError(
            f"{file.path}: has no column {missing[0]}; it has {', '.join(present)}; leave it out by data.source.files"
        )
