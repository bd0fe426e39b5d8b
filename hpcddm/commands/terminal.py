"""Consoles for tables on a terminal, in a file or in a pipe."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable

READABLE_COLUMNS = 140
"""Least width of most tables in a file or a pipe, where rich would assume 80."""
ANY_COLUMNS = 1000
"""Width at which no cell of a table is cut off."""


def table_console(least_columns: int = READABLE_COLUMNS, wraps_lines: bool = False) -> Console:
    """Return a console for a table that needs `least_columns`, which a file or a pipe always gets.

    A narrower terminal keeps its own width, and the table shortens its cells; with `wraps_lines` the table stays whole,
    and the terminal wraps its lines.
    """
    console = Console()
    if console.is_terminal and not wraps_lines:
        return console
    return Console(width=max(console.width, least_columns))


def plain_text(*lines: object, style: str = "") -> Text:
    """Return lines for a console, each of visible characters alone; what reads as markup stays as it is."""
    return Text("\n".join(printable(line, MAX_LINE_CHARACTERS) for line in lines), style=style)


def needed_columns(table: Table) -> int:
    """Return the width at which no cell of a table is cut off."""
    return Console(width=ANY_COLUMNS).measure(table).maximum
