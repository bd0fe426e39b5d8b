"""Consoles for tables on a terminal, in a file or in a pipe."""

from collections.abc import Container, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Column, Table
from rich.text import Text, TextType

from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable

ANY_COLUMNS = 1000
"""Width at which no cell of a table is cut off."""
WITHOUT_LINES: dict[str, Any] = {"box": None, "pad_edge": False, "padding": (0, 2, 0, 0), "header_style": "bold"}
"""Form of a table whose columns stand apart by space alone."""
UNDERLINED: dict[str, Any] = {"box": box.SIMPLE, "padding": (0, 0, 0, 1)}
"""Form of a table with a line below the names of its columns."""


def make_table(
    columns: Iterable[str], rows: Iterable[Iterable[object]], left: Container[str], title: str = "", **form: Any
) -> Table:
    """Make a table of whole cells.

    Args:
        columns: Names of the columns.
        rows: Cells of every row: texts with a style, or values to be shown as plain text.
        left: Names of the columns whose cells begin at the left, where those of numbers end at the right.
        title: Title of the table.
        form: Further attributes of the table.
    """
    table = Table(title=plain_text(title) if title else None, title_justify="left", **form)
    for name in columns:
        justify: JustifyMethod = "left" if name in left else "right"
        table.add_column(plain_text(*name.split("\n")), justify=justify, vertical="bottom", no_wrap=True)
    for cells in rows:
        table.add_row(*(cell if isinstance(cell, Text) else plain_text(cell) for cell in cells))
    return table


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
