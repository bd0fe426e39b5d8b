"""Tables of metadata with one row per key: CSV, JSON lines, or parquet as img2dataset writes it."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from hpcddm.config.filter.nullable_values import KINDS, Kind, NullableValues, empty_column, mixed_kinds_error
from hpcddm.errors import UserError, require
from hpcddm.files import atomic, text_files
from hpcddm.sources.tables import csv_rows, parquet_rows

Rows = Iterator[tuple[int, Sequence[object]]]
"""Iterator over rows: the number of a row, or of the line on which it ends, and its values of some columns."""
Kinds = Iterator[tuple[str, Kind | None, str]]
"""Iterator over the kinds of values in each column, with the place of the first; None if they cannot be compared."""


class TableRow(NamedTuple):
    """Row of a table: its file, the number of the row or of the line on which it ends, and values of some columns."""

    file: Path
    number: int
    values: Sequence[object]


class Lookup(NamedTuple):
    """Rows of some keys: values of some columns by key, and the number of all rows in the table."""

    values: dict[str, tuple[object, ...]]
    total: int


class Table:
    r"""A file with one row per key, or a folder of such files; only rows of requested keys are kept in memory.

    Args:
        path: The file or folder. File names end in .csv, .jsonl or .parquet.
        key: Name of the column with the keys.

    Raises:
        UserError: The name is not that of a table, or a folder has no tables or tables of several formats.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "sizes.csv")
        ...     atomic.write_text(path, "key,width\ncat,640\ndog,\n")
        ...     Table(path).rows(["width"], keys=["cat", "dog"])
        Lookup(values={'cat': (640,), 'dog': (None,)}, total=2)
    """

    def __init__(self, path: Path, key: str = "key") -> None:
        self._path, self._files, self._key = path, files_of(path), key
        self._format = FORMATS[_end(self._files[0])]
        self._kinds: dict[str, NullableValues] = {}

    @cached_property
    def column_names(self) -> frozenset[str]:
        """Names of the columns in any of the files.

        Raises:
            UserError: A file cannot be read; the message names it.
        """
        names: set[str] = set()
        for file in self._files:
            with _readable(file):
                names.update(self._format.names(file))
        return frozenset(names)

    def rows(self, names: Sequence[str], keys: Collection[str]) -> Lookup:
        """Return the values of some columns in the rows of some keys.

        In a CSV file, an empty cell is a missing value, and a column holds numbers if all its other cells do.

        Args:
            names: Names of the columns.
            keys: Keys to look up; keys without a row are omitted from the result.

        Returns:
            Values by key, None for a missing value, and the number of rows in the table.

        Raises:
            UserError: A column is missing, a requested key has two rows, or a file cannot be read.
        """
        rows, count = self._rows_of(names, keys)
        if self._format.has_types:
            return Lookup({key: tuple(row.values) for key, row in rows.items()}, count)
        kinds = self.empty_columns(names)
        is_number = [kinds[name].kind == "number" for name in names]
        values = {key: tuple(map(_value, row.values, is_number)) for key, row in rows.items()}
        return Lookup(values, count)

    def empty_columns(self, names: Sequence[str]) -> dict[str, NullableValues]:
        """Return columns by name, with their kinds but without rows; kinds follow from all files, so all units agree.

        Args:
            names: Names of the columns.

        Raises:
            UserError: A column has values of several kinds, or values that cannot be compared.
        """
        pending = [name for name in dict.fromkeys(names) if name not in self._kinds]
        first: dict[str, dict[Kind | None, str]] = {name: {} for name in pending}
        for file in self._files if pending else ():
            with _readable(file):
                for name, kind, place in self._format.kinds(file, [self._key, *pending]):
                    first[name].setdefault(kind, f"{file}: {place}")
        for name, places in first.items():
            if not self._format.has_types and "text" in places:
                places.pop("number", None)
            require(len(places) < 2 and None not in places, f"column {name}: {mixed_kinds_error(places)}")
            self._kinds[name] = empty_column(next(iter(places), None), places.get("text", ""))
        return {name: self._kinds[name] for name in names}

    def other_keys(self, keys: Collection[str]) -> list[str]:
        """List the keys of all rows except those in `keys`."""
        wanted = set(keys)
        return [key for key, _ in self._keyed([]) if key not in wanted]

    def first_key(self) -> str | None:
        """Return the key of the first row; None for a table without rows."""
        return next((key for key, _ in self._keyed([])), None)

    def no_rows_error(self, keys: Sequence[str], count: int) -> str:
        """Return the error that none of `count` samples has a row; `keys` are the keys of some of them."""
        first = self.first_key()
        has = "it has no row" if first is None else f"its first key is {first!r:.100}"
        advice = "write keys into it as samples have them, or name their column by data.table.key"
        return f"{self._path}: no row for any of {count} samples: {has}, that of a sample is {keys[0]!r:.100}; {advice}"

    def texts(self, name: str, keys: Sequence[str], pick: Callable[..., object] | None = None) -> list[str | None]:
        """Return the texts of a column as written in the file, one for each key; None for a missing value or row.

        pick: chooses one value of a list; its arguments are the list, and the place that an error names.

        Raises:
            UserError: A value is not a text, or a file is wrong as for `rows`.
        """
        rows, listed = self._rows_of([name], keys)[0], list[str | None]()
        for key in keys:
            file, _, (text,) = rows.get(key) or (None, 0, [None])
            text = pick(text, f"{file}: {name} of {key}") if pick and isinstance(text, list) else text
            if text is not None and not isinstance(text, str):
                raise UserError(f"{file}: {name} of {key}: {text!r:.60} is not a text")
            listed.append(text)
        return listed

    def numbers(self, name: str, count: int) -> Iterator[tuple[str, int]]:
        """Yield each row's key and whole number in a column, in the order of the rows.

        Args:
            name: Name of the column.
            count: Upper bound; numbers are 0 to `count` - 1.

        Raises:
            UserError: A row has another value; the message names the first.
        """
        for key, (file, place, (value,)) in self._keyed([name]):
            is_digits = isinstance(value, str) and value.isdecimal() and not self._format.has_types
            number = int(str(value)) if is_digits else value
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < count:
                row = f"{self._format.unit} {place}: {name} of {key}"
                raise UserError(f"{file}: {row}: {value!r:.60} is not a whole number from 0 to {count - 1}")
            yield key, number

    def _rows_of(self, names: Sequence[str], keys: Collection[str]) -> tuple[dict[str, TableRow], int]:
        """Return the rows of some keys with the values of some columns, and the number of all rows."""
        wanted, unit, count = set(keys), self._format.unit, 0
        rows: dict[str, TableRow] = {}
        for key, row in self._keyed(names):
            file, number, _ = row
            count += 1
            if key in wanted:
                if key in rows:
                    first = rows[key]
                    other = "" if first.file == file else f" of {first.file.name}"
                    twice = f"{key} is in {unit} {first.number}{other}, too; remove one"
                    raise UserError(f"{file}: {unit} {number}: {twice}")
                rows[key] = row
        missing = next((key for key in wanted - rows.keys() if key in self._hidden), None)
        require(missing is None, f"{self._hidden.get(missing or '')} and hides the row of {missing}; close it")
        return rows, count

    @cached_property
    def _hidden(self) -> dict[str, str]:
        """Keys of apparent rows inside quoted cells of CSV files, with the place of the opening quote."""
        if self._format.has_types:
            return {}
        return {
            key: f"{file}: line {line}: a quote opens here"
            for file in self._files
            for key, line in csv_rows.find_hidden_rows(file, self._key).items()
        }

    def _keyed(self, names: Sequence[str]) -> Iterator[tuple[str, TableRow]]:
        """Yield key and values of every row; raises `UserError` naming a row whose key is not a text."""
        for file in self._files:
            with _readable(file):
                for number, (key, *values) in self._format.rows(file, [self._key, *names]):
                    if not isinstance(key, str):
                        place = f"{file}: {self._format.unit} {number}"
                        raise UserError(f"{place}: {self._key} {key!r:.60} is not a text, as keys must be")
                    yield key, TableRow(file, number, values)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: no readable table ({error}); mend or replace it") from None


def files_of(path: Path) -> list[Path]:
    """List the files of a table: the file itself, or the files of a folder with a table's format, sorted by name.

    Args:
        path: A file, or a folder such as img2dataset writes, with one table for every tar.

    Raises:
        UserError: A table is missing, or the tables of a folder differ in format.
    """
    kinds = ", ".join(FORMATS)
    if not path.is_dir():
        named = f"{path}: no folder, and a table's name ends in one of {kinds}; write it as one of these"
        require(_end(path) in FORMATS, named)
        return [path]
    # Hidden files are those that macOS adds to its copies.
    files = sorted(file for file in path.iterdir() if _end(file) in FORMATS and not file.name.startswith("."))
    require(len(files) > 0, f"{path}: no table in this folder, no name that ends in one of {kinds}")
    other = next((file for file in files if _end(file) != _end(files[0])), files[0])
    same = f"{path}: {files[0].name} and {other.name} have not one format; keep those of one in this folder"
    require(other == files[0], same)
    return files


def _end(file: Path) -> str:
    return file.suffix.lower()


def content_hash(path: Path) -> str:
    """Hash a table: SHA-256 of the file, or of names and hashes of all files in a folder.

    Raises:
        UserError: A table is missing, or the tables of a folder differ in format.
        OSError: A file cannot be read.
    """
    files = files_of(path)
    if files == [path]:
        return atomic.sha256(path)
    return hashlib.sha256(repr([(file.name, atomic.sha256(file)) for file in files]).encode()).hexdigest()


def _value(cell: object, is_number: bool) -> object:
    """Return the value of a cell of a CSV file."""
    return (csv_rows.parse_number(cell) if is_number else cell) if isinstance(cell, str) and cell else None


def _json_names(path: Path) -> list[str]:
    return list(dict.fromkeys(name for _, row in _json_objects(path) for name in row))


def _json_rows(path: Path, names: Sequence[str]) -> Rows:
    seen: dict[str, None] = {}
    for number, row in _json_objects(path):
        seen |= dict.fromkeys(row)
        yield number, [row.get(name) for name in names]
    csv_rows.check_columns(names, seen)


def _json_objects(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    with text_files.open_text(path, errors="strict") as file:
        for number, line in enumerate(file, 1):
            plain = line.strip().lstrip(text_files.BYTE_ORDER_MARK)
            if not plain:
                continue
            try:
                row = json.loads(plain)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"line {number}: {row!r:.60} is not an object with column names")
            yield number, row


def _json_kinds(path: Path, names: Sequence[str]) -> Kinds:
    return _kinds_of(_json_rows(path, names), names[1:], lambda value: KINDS.get(type(value)), None)


def _csv_kinds(path: Path, names: Sequence[str]) -> Kinds:
    return _kinds_of(csv_rows.rows(path, names), names[1:], _kind_of_cell, "")


def _kind_of_cell(cell: object) -> Kind:
    try:
        csv_rows.parse_number(str(cell))
    except ValueError:
        return "text"
    return "number"


def _kinds_of(rows: Rows, names: Sequence[str], kind_of: Callable[[object], Kind | None], null: object) -> Kinds:
    """Yield the first value of each kind; `rows` have the key first, and `null` marks a missing value besides None."""
    kinds: dict[str, set[Kind | None]] = {name: set() for name in names}
    for number, (_, *values) in rows:
        for name, value in zip(names, values, strict=True):
            if value in (None, null):
                continue
            kind = kind_of(value)
            if kind not in kinds[name]:
                kinds[name].add(kind)
                yield name, kind, f"line {number}: {value!r:.40}"


class Format(NamedTuple):
    """A file format of tables.

    Attributes:
        unit: Unit that errors count, 'line' or 'row'.
        has_types: True if values have types; False if all are texts.
        names: Function that reads the names of the columns.
        rows: Function that reads the rows of a file; the first of its column names is that of the keys.
        kinds: Function that finds the kinds of values in a file; the first of its column names is that of the keys.
    """

    unit: str
    has_types: bool
    names: Callable[[Path], list[str]]
    rows: Callable[[Path, Sequence[str]], Rows]
    kinds: Callable[[Path, Sequence[str]], Kinds]


FORMATS = {
    ".csv": Format("line", False, csv_rows.column_names, csv_rows.rows, _csv_kinds),
    ".jsonl": Format("line", True, _json_names, _json_rows, _json_kinds),
    ".parquet": Format("row", True, parquet_rows.column_names, parquet_rows.rows, parquet_rows.kinds),
}
"""Formats of tables, by file extension."""
