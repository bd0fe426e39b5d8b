"""Tables of what is known of samples, a row per key: CSV, JSON lines, or parquet such as img2dataset's."""

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TextIO

from hpcddm.errors import UserError, require
from hpcddm.rundir import atomic

if TYPE_CHECKING:
    from polars import LazyFrame

BLOCK = 2**16
"""Rows of a parquet file that are in memory at a time."""
Rows = Iterator[tuple[int, Sequence[object]]]
"""Number of a row, or of the line on which it ends, and its values of some columns."""


class Row(NamedTuple):
    """Row of a table: its file, its number or that of the line on which it ends, and its values of some columns."""

    file: Path
    number: int
    values: Sequence[object]


class Table:
    """A file with a row per key, or a folder of such files; only rows of keys that are asked for are kept in memory.

    key: name of the column with the keys. Raises `UserError` naming a file, or folder, that is no table by its name.
    """

    def __init__(self, path: Path, key: str = "key") -> None:
        self._files, self._key = files_of(path), key
        self._format = FORMATS[self._files[0].suffix]

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the columns of any file; raises `UserError` naming one that cannot be read."""
        names: set[str] = set()
        for file in self._files:
            with _readable(file):
                names.update(self._format.names(file))
        return frozenset(names)

    def columns(self, names: Sequence[str], keys: Sequence[str]) -> dict[str, list[object]]:
        """Return the values of some columns for some keys, in their order; None for a row or a value that is missing.

        Of a CSV file, an empty cell is None, and a column is of numbers where all of its other cells are. Raises
        `UserError` naming the file with what is wrong in it: a column that is missing, one of the keys twice.
        """
        rows = self._rows_of(names, keys)
        columns: dict[str, list[object]] = {
            name: [row and row.values[place] for row in rows] for place, name in enumerate(names)
        }
        if self._format.has_types:
            return columns
        numeric = self._numeric(names)
        return {name: [_value(cell, name in numeric) for cell in cells] for name, cells in columns.items()}

    def texts(self, name: str, keys: Sequence[str]) -> list[str | None]:
        """Return the texts of a column as they stand in the file, as `columns`; raises `UserError` for other values."""
        texts: list[str | None] = []
        for key, row in zip(keys, self._rows_of([name], keys), strict=True):
            file, _, (text,) = row or (None, 0, [None])
            if text is not None and not isinstance(text, str):
                raise UserError(f"{file}: {name} of {key}: {text!r:.60} is no text")
            texts.append(text)
        return texts

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

    def _rows_of(self, names: Sequence[str], keys: Sequence[str]) -> list[Row | None]:
        """Return the rows of some keys, in their order, with the values of some columns."""
        wanted, unit = set(keys), self._format.unit
        found: dict[str, Row] = {}
        for key, row in self._keyed(names):
            file, number, _ = row
            if key in wanted:
                if key in found:
                    first = found[key]
                    other = "" if first.file == file else f" of {first.file.name}"
                    twice = f"{key} stands in {unit} {first.number}{other}, too; remove one"
                    raise UserError(f"{file}: {unit} {number}: {twice}")
                found[key] = row
        return [found.get(key) for key in keys]

    def _keyed(self, names: Sequence[str]) -> Iterator[tuple[str, Row]]:
        """Yield key and values of every row; raises `UserError` naming a row whose key is no text."""
        for file, number, (key, *values) in self._rows(names):
            if not isinstance(key, str):
                unit = self._format.unit
                raise UserError(f"{file}: {unit} {number}: {self._key} {key!r:.60} is no text, as a key is")
            yield key, Row(file, number, values)

    def _numeric(self, names: Sequence[str]) -> set[str]:
        """Return the columns of texts that are all numbers, in all files: all units see the same kinds."""
        numeric = dict(enumerate(names))
        for _, _, (_, *cells) in self._rows(names):
            for place in list(numeric):
                try:
                    _number(str(cells[place] or 0))
                except ValueError:
                    del numeric[place]
        return set(numeric.values())

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
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise UserError(f"{file}: no readable table ({error}); mend or replace it") from None


def files_of(path: Path) -> list[Path]:
    """List the files of a table: itself, or those of a folder that have a table's format, in the order of their names.

    img2dataset writes one beside every tar. Raises `UserError` where there is none, or where they differ in format.
    """
    kinds = ", ".join(FORMATS)
    if not path.is_dir():
        named = f"{path}: no folder, and a table's name ends in one of {kinds}; write it as one of these"
        require(path.suffix in FORMATS, named)
        return [path]
    # Hidden files are those that macOS adds to its copies.
    files = sorted(file for file in path.iterdir() if file.suffix in FORMATS and not file.name.startswith("."))
    require(len(files) > 0, f"{path}: no table in this folder, no name that ends in one of {kinds}")
    other = next((file for file in files if file.suffix != files[0].suffix), files[0])
    same = f"{path}: {files[0].name} and {other.name} have not one format; keep those of one in this folder"
    require(other == files[0], same)
    return files


def content(path: Path) -> str:
    """Hash a table: its SHA-256, or names and SHA-256 of all files of a folder; raises as `files_of`, and `OSError`."""
    files = files_of(path)
    if files == [path]:
        return atomic.sha256(path)
    return hashlib.sha256(repr([(file.name, atomic.sha256(file)) for file in files]).encode()).hexdigest()


def _value(cell: object, is_number: bool) -> object:
    """Return what a cell of a CSV file says."""
    return (_number(cell) if is_number else cell) if isinstance(cell, str) and cell else None


def _number(text: str) -> int | float:
    """Read a number; raises ValueError for another text."""
    if "_" in text:
        raise ValueError(f"{text}: Python's way to group digits is nobody else's")
    try:
        return int(text)
    except ValueError:
        return float(text)


def _csv_names(path: Path) -> list[str]:
    with _csv_file(path) as file:
        return _csv_header(csv.reader(file))


def _csv_rows(path: Path, names: Sequence[str]) -> Rows:
    with _csv_file(path) as file:
        reader = csv.reader(file)
        header = _csv_header(reader)
        _check_columns(names, header)
        places = [header.index(name) for name in names]
        for cells in filter(None, reader):
            if len(cells) != len(header):
                raise ValueError(f"line {reader.line_num}: {len(cells)} cells, where {len(header)} columns are named")
            key, *values = (cells[place] for place in places)
            _check_utf8(values, reader.line_num)
            yield reader.line_num, [key, *values]


def _csv_file(path: Path) -> TextIO:
    # Keys need not be UTF-8, as names in a tar need not; some programs begin a file with a mark.
    return open(path, newline="", encoding="utf-8-sig", errors="surrogateescape")


def _csv_header(reader: Iterator[list[str]]) -> list[str]:
    header = next(reader, [])
    _check_utf8(header, 1)
    return header


def _check_utf8(cells: Iterable[str], line: int) -> None:
    """Raise ValueError for a cell whose bytes are no UTF-8."""
    for cell in cells:
        if not cell.isascii():
            try:
                cell.encode(errors="surrogateescape").decode()
            except UnicodeDecodeError as error:
                raise ValueError(f"line {line}: {error}") from None


def _json_names(path: Path) -> list[str]:
    return list(dict.fromkeys(name for _, row in _json_objects(path) for name in row))


def _json_rows(path: Path, names: Sequence[str]) -> Rows:
    seen: dict[str, None] = {}
    for number, row in _json_objects(path):
        seen |= dict.fromkeys(row)
        yield number, [row.get(name) for name in names]
    _check_columns(names, seen)


def _json_objects(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _json_object(line, number)


def _json_object(line: str, number: int) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"line {number}: {row!r:.60} is no object with the names of columns")
    return row


def _parquet_names(path: Path) -> list[str]:
    with _parquet(path) as table:
        return table.collect_schema().names()


def _parquet_rows(path: Path, names: Sequence[str]) -> Rows:
    with _parquet(path) as table:
        polars = polars_for(path)
        _check_columns(names, table.collect_schema().names())
        chosen = table.select(polars.col(name).alias(str(place)) for place, name in enumerate(names))
        for start in range(0, table.select(polars.len()).collect().item(), BLOCK):
            yield from enumerate(chosen.slice(start, BLOCK).collect().iter_rows(), start)


@contextmanager
def _parquet(path: Path) -> Iterator["LazyFrame"]:
    """Open a parquet file; raises ValueError for what polars cannot read in the body."""
    polars = polars_for(path)
    try:
        yield polars.scan_parquet(path, glob=False, hive_partitioning=False)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        # A damaged file makes it panic at times; what follows the first line is about its own code.
        raise ValueError(str(error).partition("\n")[0]) from None


def polars_for(path: Path) -> ModuleType:
    """Import polars; raises `UserError` naming the file that needs it."""
    try:
        import polars
    except ImportError:
        needed = "a parquet table needs the package polars; install it with: pip install 'hpcddm[collections]'"
        raise UserError(f"{path}: {needed}") from None
    return polars


def _check_columns(names: Iterable[str], there: Iterable[str]) -> None:
    """Raise ValueError naming a column that is not there."""
    for name in names:
        if name not in there:
            raise ValueError(f"no column {name}; there are: {', '.join(there)}")


class Format(NamedTuple):
    """A kind of file: what an error counts, if values have types or are all text, how names and rows are read.

    rows: of a file and the names of columns, the first of them that of the keys.
    """

    unit: str
    has_types: bool
    names: Callable[[Path], list[str]]
    rows: Callable[[Path, Sequence[str]], Rows]


FORMATS = {
    ".csv": Format("line", False, _csv_names, _csv_rows),
    ".jsonl": Format("line", True, _json_names, _json_rows),
    ".parquet": Format("row", True, _parquet_names, _parquet_rows),
}
"""Formats of tables, by the ends of their files' names."""
