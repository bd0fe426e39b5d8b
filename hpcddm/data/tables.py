"""Tables of what is known of samples, a row per key: CSV, JSON lines, or parquet such as img2dataset's."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from hpcddm.config.filter.cells import KINDS, Cells, Kind, no_rows, of_one_kind
from hpcddm.data import csv_rows, parquet_rows, texts
from hpcddm.errors import UserError, require
from hpcddm.files import atomic

Rows = Iterator[tuple[int, Sequence[object]]]
"""Number of a row, or of the line on which it ends, and its values of some columns."""
Kinds = Iterator[tuple[str, Kind | None, str]]
"""Name of a column, a kind of its values, or None for what cannot be compared, and the place of the first."""


class Row(NamedTuple):
    """Row of a table: its file, its number or that of the line on which it ends, and its values of some columns."""

    file: Path
    number: int
    values: Sequence[object]


class Lookup(NamedTuple):
    """Rows of some keys: the values of some columns by key, and the number of all rows that the table has."""

    values: dict[str, tuple[object, ...]]
    total: int


class Table:
    """A file with a row per key, or a folder of such files; only rows of keys that are asked for are kept in memory.

    key: name of the column with the keys. Raises `UserError` naming a file, or folder, that is no table by its name.
    """

    def __init__(self, path: Path, key: str = "key") -> None:
        self._path, self._files, self._key = path, files_of(path), key
        self._format = FORMATS[_end(self._files[0])]
        self._kinds: dict[str, Cells] = {}

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the columns of any file; raises `UserError` naming one that cannot be read."""
        names: set[str] = set()
        for file in self._files:
            with _readable(file):
                names.update(self._format.names(file))
        return frozenset(names)

    def rows(self, names: Sequence[str], keys: Collection[str]) -> Lookup:
        """Return the values of some columns in the rows of some keys; None for a value that is missing.

        Of a CSV file, an empty cell is None, and a column is of numbers where all of its other cells are. Raises
        `UserError` naming the file with what is wrong in it: a column that is missing, one of the keys twice.
        """
        rows, count = self._rows_of(names, keys)
        if self._format.has_types:
            return Lookup({key: tuple(row.values) for key, row in rows.items()}, count)
        kinds = self.kinds(names)
        is_number = [kinds[name].kind == "number" for name in names]
        values = {key: tuple(map(_value, row.values, is_number)) for key, row in rows.items()}
        return Lookup(values, count)

    def kinds(self, names: Sequence[str]) -> dict[str, Cells]:
        """Return some columns without their rows; their kinds follow from all files, so that all units see the same.

        Raises `UserError` naming the first values of a column that has several kinds, or none that can be compared.
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
            require(len(places) < 2 and None not in places, f"column {name}: {of_one_kind(places)}")
            self._kinds[name] = no_rows(next(iter(places), None), places.get("text", ""))
        return {name: self._kinds[name] for name in names}

    def other_keys(self, keys: Collection[str]) -> list[str]:
        """List the keys of all rows but those of some keys."""
        wanted = set(keys)
        return [key for key, _ in self._keyed([]) if key not in wanted]

    def first_key(self) -> str | None:
        """Return the key of the first row; None where there is none."""
        return next((key for key, _ in self._keyed([])), None)

    def lacks_all(self, keys: Sequence[str], count: int) -> str:
        """Return an error about so many samples of which none has a row; keys: some of them."""
        first = self.first_key()
        has = "it has no row" if first is None else f"its first key is {first!r:.100}"
        advice = "write keys into it as samples have them, or name their column by data.table.key"
        return f"{self._path}: no row for any of {count} samples: {has}, that of a sample is {keys[0]!r:.100}; {advice}"

    def texts(self, name: str, keys: Sequence[str]) -> list[str | None]:
        """Return the texts of a column as they stand in the file, as `columns`; raises `UserError` for other values."""
        listed: list[str | None] = []
        rows, _ = self._rows_of([name], keys)
        for key in keys:
            file, _, (text,) = rows.get(key) or (None, 0, [None])
            if text is not None and not isinstance(text, str):
                raise UserError(f"{file}: {name} of {key}: {text!r:.60} is no text")
            listed.append(text)
        return listed

    def numbers(self, name: str, count: int) -> Iterator[tuple[str, int]]:
        """Yield every row's key and its number in a column, from 0 to count - 1, in the order of the rows.

        Raises `UserError` naming the first row with another value.
        """
        for key, (file, place, (value,)) in self._keyed([name]):
            is_digits = isinstance(value, str) and value.isdecimal() and not self._format.has_types
            number = int(str(value)) if is_digits else value
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < count:
                row = f"{self._format.unit} {place}: {name} of {key}"
                raise UserError(f"{file}: {row}: {value!r:.60} is no whole number from 0 to {count - 1}")
            yield key, number

    def _rows_of(self, names: Sequence[str], keys: Collection[str]) -> tuple[dict[str, Row], int]:
        """Return the rows of some keys, with the values of some columns, and the number of all rows."""
        wanted, unit, count = set(keys), self._format.unit, 0
        rows: dict[str, Row] = {}
        for key, row in self._keyed(names):
            file, number, _ = row
            count += 1
            if key in wanted:
                if key in rows:
                    first = rows[key]
                    other = "" if first.file == file else f" of {first.file.name}"
                    twice = f"{key} stands in {unit} {first.number}{other}, too; remove one"
                    raise UserError(f"{file}: {unit} {number}: {twice}")
                rows[key] = row
        missing = next((key for key in wanted - rows.keys() if key in self._hidden), None)
        require(missing is None, f"{self._hidden.get(missing or '')} and hides the row of {missing}; close it")
        return rows, count

    @cached_property
    def _hidden(self) -> dict[str, str]:
        """Keys of what looks like rows inside of cells of CSV files, and the quote that opens the cell."""
        if self._format.has_types:
            return {}
        return {
            key: f"{file}: line {line}: a quote opens here"
            for file in self._files
            for key, line in csv_rows.hidden_rows(file, self._key).items()
        }

    def _keyed(self, names: Sequence[str]) -> Iterator[tuple[str, Row]]:
        """Yield key and values of every row; raises `UserError` naming a row whose key is no text."""
        for file, number, (key, *values) in self._rows(names):
            if not isinstance(key, str):
                unit = self._format.unit
                raise UserError(f"{file}: {unit} {number}: {self._key} {key!r:.60} is no text, as a key is")
            yield key, Row(file, number, values)

    def _rows(self, names: Sequence[str]) -> Iterator[Row]:
        """Yield the rows of all files: key and values of some columns."""
        for file in self._files:
            with _readable(file):
                for number, values in self._format.rows(file, [self._key, *names]):
                    yield Row(file, number, values)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: no readable table ({error}); mend or replace it") from None


def files_of(path: Path) -> list[Path]:
    """List the files of a table: itself, or those of a folder that have a table's format, in the order of their names.

    img2dataset writes one beside every tar. Raises `UserError` where there is none, or where they differ in format.
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


def content(path: Path) -> str:
    """Hash a table: its SHA-256, or names and SHA-256 of all files of a folder; raises as `files_of`, and `OSError`."""
    files = files_of(path)
    if files == [path]:
        return atomic.sha256(path)
    return hashlib.sha256(repr([(file.name, atomic.sha256(file)) for file in files]).encode()).hexdigest()


def _value(cell: object, is_number: bool) -> object:
    """Return what a cell of a CSV file says."""
    return (csv_rows.number(cell) if is_number else cell) if isinstance(cell, str) and cell else None


def _json_names(path: Path) -> list[str]:
    return list(dict.fromkeys(name for _, row in _json_objects(path) for name in row))


def _json_rows(path: Path, names: Sequence[str]) -> Rows:
    seen: dict[str, None] = {}
    for number, row in _json_objects(path):
        seen |= dict.fromkeys(row)
        yield number, [row.get(name) for name in names]
    csv_rows.check_columns(names, seen)


def _json_objects(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    with texts.opened(path, errors="strict") as file:
        for number, line in enumerate(file, 1):
            plain = line.strip().lstrip(texts.MARK)
            if plain:
                yield number, _json_object(plain, number)


def _json_object(line: str, number: int) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"line {number}: {row!r:.60} is no object with the names of columns")
    return row


def _json_kinds(path: Path, names: Sequence[str]) -> Kinds:
    return _kinds_of(_json_rows(path, names), names[1:], lambda value: KINDS.get(type(value)), None)


def _csv_kinds(path: Path, names: Sequence[str]) -> Kinds:
    return _kinds_of(csv_rows.rows(path, names), names[1:], _kind_of_cell, "")


def _kind_of_cell(cell: object) -> Kind:
    try:
        csv_rows.number(str(cell))
    except ValueError:
        return "text"
    return "number"


def _kinds_of(rows: Rows, names: Sequence[str], kind_of: Callable[[object], Kind | None], null: object) -> Kinds:
    """Yield the first value of each kind; rows: with the key in front; null: what a missing value is beside None."""
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
    """A kind of file: what an error counts, if values have types or are all text, how names and rows are read.

    rows, kinds: of a file and the names of columns, the first of them that of the keys.
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
"""Formats of tables, by the ends of their files' names."""
