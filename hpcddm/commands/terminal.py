"""Consoles for tables on a terminal, in a file or in a pipe."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text, TextType

from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable

READABLE_COLUMNS = 140
"""Least width of most tables in a file or a pipe, where rich would assume 80."""
ANY_COLUMNS = 1000
"""Width at which no cell of a table is cut off."""


def table_console() -> Console:
    """Return a console for a table that shortens its cells on a narrow terminal; a file or a pipe is wide enough."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, READABLE_COLUMNS))


def print_table(table: Table, labels: int = 1) -> None:
    """Print a table with whole cells: columns that do not fit on the terminal go below, after the labels again.

    Args:
        table: The table.
        labels: Number of its first columns that name a row.
    """
    console = Console()
    width = console.width if console.is_terminal else ANY_COLUMNS
    for part in _parts(table, labels, width):
        # Columns of text may be broken into lines, but not numbers and labels.
        whole = needed_columns(part) if all(column.no_wrap for column in part.columns) else 0
        Console(width=max(width, whole)).print(part)


def _parts(table: Table, labels: int, width: int) -> Iterator[Table]:
    """Split a table into tables of the most columns that fit, the first one with the title."""
    fixed, rest = table.columns[:labels], table.columns[labels:]
    title = table.title
    while True:
        fitting = [_part(table, [*fixed, *rest[:many]], title) for many in range(len(rest), 1, -1)]
        part = next((one for one in fitting if needed_columns(one) <= width), _part(table, [*fixed, *rest[:1]], title))
        yield part
        rest, title = rest[len(part.columns) - labels :], None
        if not rest:
            return


def _part(table: Table, columns: Sequence[Column], title: TextType | None) -> Table:
    part = copy(table)
    part.title, part.columns = title, [replace(column, _index=place) for place, column in enumerate(columns)]
    return part


def plain_text(*lines: object, style: str = "") -> Text:
    """Return lines for a console, each of visible characters alone; what reads as markup stays as it is."""
    return Text("\n".join(printable(line, MAX_LINE_CHARACTERS) for line in lines), style=style)


def needed_columns(table: Table) -> int:
    """Return the width at which no cell of a table is cut off."""
    return Console(width=ANY_COLUMNS).measure(table).maximum
