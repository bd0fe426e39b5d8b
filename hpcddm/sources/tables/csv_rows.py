"""Rows of CSV files with their line numbers; all cells are texts."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

from hpcddm.errors import require
from hpcddm.files import text_files

CLOSED_CELLS = re.compile(r"""(?:(?:"(?:[^"]|"")*+"|[^",\r\n][^,\r\n]*+|),)*+""")
"""The cells of a row in front of the first that is wrong."""
LINE_END = re.compile("\r\n?|\n")
WRONG_QUOTES = {
    "unexpected end of data": "a quote that opens here is never closed; close it",
    "',' expected after '\"'": "a cell goes on behind the quote that closes it; end it there",
}
"""Errors of Python's csv about quotes -> the same for people."""


def column_names(path: Path) -> list[str]:
    """Return the names in the first line; raises ValueError, as the functions below, for what is wrong."""
    with text_files.open_text(path, newline="") as file:
        return _header(_records(file))


def rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the line on which each row ends, and its cells of some columns; the first of them has the keys."""
    with text_files.open_text(path, newline="") as file:
        records = _records(file)
        header = _header(records)
        places = [_place(name, header) for name in names]
        for _, line, cells in records:
            if len(cells) != len(header):
                raise ValueError(f"line {line}: {len(cells)} cells, where {len(header)} columns are named")
            key, *values = (cells[place] for place in places)
            _check_utf8(values, line)
            yield line, [key, *values]


def parse_number(text: str) -> int | float:
    """Read a number; raises ValueError for another text."""
    require("_" not in text, f"{text}: digits grouped by '_', which only Python reads", ValueError)
    try:
        return int(text)
    except ValueError:
        return float(text)


def find_hidden_rows(path: Path, key: str) -> dict[str, int]:
    """Find what looks like rows inside of cells, as a quote too many makes them: key -> line on which the cell opens.

    Most of it is nothing but texts with line ends and commas; a key that is missed tells.
    """
    hidden: dict[str, int] = {}
    with text_files.open_text(path, newline="") as file:
        records = _records(file)
        header = _header(records)
        place = _place(key, header)
        for start, line, cells in records:
            for cell in cells if line > start else ():
                for inner in LINE_END.split(cell)[1:]:
                    parts = inner.split(",")
                    if len(parts) >= len(header):
                        hidden.setdefault(parts[place].strip('"'), start)
    return hidden


def _records(file: TextIO) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the first line, the last line and the cells of every row but empty ones."""
    reader, start = csv.reader(file, strict=True), 1
    try:
        for cells in reader:
            if cells:
                yield start, reader.line_num, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(_explained(str(error), file, start, reader.line_num)) from None


def _explained(error: str, file: TextIO, start: int, stop: int) -> str:
    """Return an error with the line on which the wrong cell opens; start, stop: lines of its row, as far as read."""
    file.seek(0)
    row = "".join(islice(file, start - 1, stop))
    closed = CLOSED_CELLS.match(row)
    end = closed.end() if closed else 0
    line = start + len(LINE_END.findall(row[:end]))
    if error in WRONG_QUOTES:
        return f"line {line}: {WRONG_QUOTES[error]}, and write a quote inside of a quoted cell as two"
    unclosed = "; is its quote never closed?" if row[end : end + 1] == '"' else ""
    return f"line {line}: a cell that begins here is too long ({error}){unclosed}"


def _header(records: Iterator[tuple[int, int, list[str]]]) -> list[str]:
    _, line, header = next(records, (1, 1, []))
    _check_utf8(header, line)
    return [text_files.normalise(name) for name in header]


def check_columns(names: Iterable[str], available: Iterable[str]) -> None:
    """Raise ValueError naming a missing column."""
    for name in names:
        require(name in available, f"no column {name}; there are: {', '.join(available)}", ValueError)


def _place(name: str, header: Sequence[str]) -> int:
    check_columns([name], header)
    require(header.count(name) <= 1, f"two columns {name}; rename one", ValueError)
    return header.index(name)


def _check_utf8(cells: Iterable[str], line: int) -> None:
    """Raise ValueError for a cell whose bytes are not UTF-8."""
    for cell in cells:
        if not cell.isascii():
            try:
                cell.encode(errors="surrogateescape").decode()
            except UnicodeDecodeError as error:
                raise ValueError(f"line {line}: {error}") from None
