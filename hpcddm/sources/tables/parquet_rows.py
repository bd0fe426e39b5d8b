"""Rows of parquet files, some at a time, and the kinds of their columns."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from hpcddm.config.filter.nullable_values import KINDS, Kind
from hpcddm.errors import UserError
from hpcddm.errors.next_step import install_command
from hpcddm.sources.tables.csv_rows import check_columns

if TYPE_CHECKING:
    from polars import LazyFrame

BLOCK = 2**16
"""Rows that are in memory at a time."""


def column_names(path: Path) -> list[str]:
    """Return the names of the columns; raises ValueError, as the functions below, for what is wrong."""
    with _opened(path) as table:
        return table.collect_schema().names()


def rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, Sequence[object]]]:
    """Yield the number of each row, from 0 on, and its values of some columns."""
    with _opened(path) as table:
        polars = polars_for(path)
        check_columns(names, table.collect_schema().names())
        chosen = table.select(polars.col(name).alias(str(place)) for place, name in enumerate(names))
        for start in range(0, table.select(polars.len()).collect().item(), BLOCK):
            yield from enumerate(chosen.slice(start, BLOCK).collect().iter_rows(), start)


def kinds(path: Path, names: Sequence[str]) -> Iterator[tuple[str, Kind | None, str]]:
    """Yield name, kind and type of all columns but the first; a column of nulls has no kind, and is left out."""
    with _opened(path) as table:
        schema = table.collect_schema()
    check_columns(names, schema)
    for name in names[1:]:
        python_type = schema[name].to_python()
        if python_type is not type(None):
            yield name, KINDS.get(python_type), f"the type {schema[name]}"


@contextmanager
def _opened(path: Path) -> Iterator["LazyFrame"]:
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
        needed = f"a parquet table needs the package polars; install it with: {install_command('polars')}"
        raise UserError(f"{path}: {needed}") from None
    return polars
