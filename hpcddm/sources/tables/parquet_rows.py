"""Rows of parquet files, some at a time, and the kinds of their columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcddm.config.filter.nullable_values import Kind
from hpcddm.data.row_groups import open_parquet, pyarrow_for, readable
from hpcddm.sources.tables.csv_rows import check_columns

BLOCK = 2**16
"""Rows that are in memory at a time."""


def column_names(path: Path) -> list[str]:
    """Return the names of the columns; raises `UserError`, as the functions below, for a file that cannot be read."""
    names: list[str] = open_parquet(path).schema_arrow.names
    return names


def rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, Sequence[object]]]:
    """Yield the number of each row, from 0 on, and its values of some columns; ValueError for a missing column."""
    file, start = open_parquet(path), 0
    check_columns(names, file.schema_arrow.names)
    with readable(path):
        for batch in file.iter_batches(BLOCK, columns=list(dict.fromkeys(names))):
            columns = [batch.column(name).to_pylist() for name in names]
            yield from enumerate(zip(*columns, strict=True), start)
            start += batch.num_rows


def kinds(path: Path, names: Sequence[str]) -> Iterator[tuple[str, Kind | None, str]]:
    """Yield name, kind and type of all columns but the first; a column of nulls has no kind, and is left out."""
    schema, types = open_parquet(path).schema_arrow, pyarrow_for(path).types
    check_columns(names, schema.names)
    for name in names[1:]:
        own = schema.field(name).type
        if not types.is_null(own):
            yield name, _kind(types, own.value_type if types.is_dictionary(own) else own), f"the type {own}"


def _kind(types: Any, own: Any) -> Kind | None:
    """Return the kind of an Arrow type; None for one that is not compared. types: pyarrow's tests of types."""
    if types.is_boolean(own):
        return "condition"
    if types.is_integer(own) or types.is_floating(own):
        return "number"
    return "text" if types.is_string(own) or types.is_large_string(own) or types.is_string_view(own) else None
