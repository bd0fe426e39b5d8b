"""Tables of what is known of samples, a row per key: CSV, JSON lines, or parquet such as img2dataset's."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from hpcddm.errors import UserError, require

if TYPE_CHECKING:
    from polars import LazyFrame

BLOCK = 2**16
"""Rows of a parquet file that are in memory at a time."""
Rows = Iterator[tuple[int, Sequence[object]]]
"""Number of a row, or of the line on which it ends, and its values of some columns."""


class Table:
    """A file with a row per key; only rows of keys that are asked for are kept in memory.

    key: name of the column with the keys.
    """

    def __init__(self, path: Path, key: str = "key") -> None:
        kinds = ", ".join(FORMATS)
        require(path.suffix in FORMATS, f"{path}: a table's name ends in one of {kinds}; write it as one of these")
        self._path, self._key, self._format = path, key, FORMATS[path.suffix]

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the columns; raises `UserError` naming the file that cannot be read."""
        with self._readable():
            return frozenset(self._format.names(self._path))

    def columns(self, names: Sequence[str], keys: Sequence[str]) -> dict[str, list[object]]:
        """Return the values of some columns for some keys, in their order; None for a row or a value that is missing.

        Of a CSV file, an empty cell is None, and a column is of numbers where all of its other cells are. Raises
        `UserError` naming the file with what is wrong in it: a column that is missing, one of the keys twice.
        """
        rows = self._rows_of(names, keys)
        columns: dict[str, list[object]] = {
            name: [row and row[place] for row in rows] for place, name in enumerate(names)
        }
        if self._format.has_types:
            return columns
        numeric = self._numeric(names)
        return {name: [_value(cell, name in numeric) for cell in cells] for name, cells in columns.items()}

    def texts(self, name: str, keys: Sequence[str]) -> list[str | None]:
        """Return the texts of a column as they stand in the file, as `columns`; raises `UserError` for other values."""
        texts: list[str | None] = []
        for key, row in zip(keys, self._rows_of([name], keys), strict=True):
            text = row and row[0]
            if text is not None and not isinstance(text, str):
                raise UserError(f"{self._path}: {name} of {key}: {text!r:.60} is no text")
            texts.append(text)
        return texts

    def _rows_of(self, names: Sequence[str], keys: Sequence[str]) -> list[Sequence[object] | None]:
        """Return the values of some columns for some keys, in their order."""
        wanted, unit = set(keys), self._format.unit
        found: dict[str, tuple[int, Sequence[object]]] = {}
        for number, (key, *values) in self._rows([self._key, *names]):
            if not isinstance(key, str):
                raise UserError(f"{self._path}: {unit} {number}: {self._key} {key!r:.60} is no text, as a key is")
            if key in wanted:
                if key in found:
                    twice = f"{key} stands in {unit} {found[key][0]}, too; remove one"
                    raise UserError(f"{self._path}: {unit} {number}: {twice}")
                found[key] = number, values
        return [found[key][1] if key in found else None for key in keys]

    def _numeric(self, names: Sequence[str]) -> set[str]:
        """Return the columns of texts that are all numbers, wherever in the file: all units see the same kinds."""
        numeric = dict(enumerate(names))
        for _, cells in self._rows(names):
            for place in list(numeric):
                try:
                    _number(str(cells[place] or 0))
                except ValueError:
                    del numeric[place]
        return set(numeric.values())

    def _rows(self, names: Sequence[str]) -> Rows:
        with self._readable():
            yield from self._format.rows(self._path, names)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RecursionError, csv.Error) as error:
            raise UserError(f"{self._path}: no readable table ({error}); mend or replace it") from None


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
    # Some programs begin a file with a mark.
    with open(path, newline="", encoding="utf-8-sig") as file:
        return next(csv.reader(file), [])


def _csv_rows(path: Path, names: Sequence[str]) -> Rows:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        _check_columns(names, header)
        places = [header.index(name) for name in names]
        for cells in filter(None, reader):
            if len(cells) != len(header):
                raise ValueError(f"line {reader.line_num}: {len(cells)} cells, where {len(header)} columns are named")
            yield reader.line_num, [cells[place] for place in places]


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
        polars = _polars(path)
        _check_columns(names, table.collect_schema().names())
        chosen = table.select(polars.col(name).alias(str(place)) for place, name in enumerate(names))
        for start in range(0, table.select(polars.len()).collect().item(), BLOCK):
            yield from enumerate(chosen.slice(start, BLOCK).collect().iter_rows(), start)


@contextmanager
def _parquet(path: Path) -> Iterator["LazyFrame"]:
    """Open a parquet file; raises ValueError for what polars cannot read in the body."""
    polars = _polars(path)
    try:
        yield polars.scan_parquet(path, glob=False, hive_partitioning=False)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        # A damaged file makes it panic at times; what follows the first line is about its own code.
        raise ValueError(str(error).partition("\n")[0]) from None


def _polars(path: Path) -> ModuleType:
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
    """A kind of file: what an error counts, if values have types or are all text, how names and rows are read."""

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
