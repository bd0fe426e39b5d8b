"""Writing a table row by row: CSV, JSON lines, parquet, or a text with the one column that there is."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from hpcddm.data.parquet_rows import polars_for
from hpcddm.errors import UserError
from hpcddm.files import atomic

Rows = Iterable[Sequence[Any]]
Append = Callable[[Rows], None]


@contextmanager
def table_file(path: Path, columns: Mapping[str, type]) -> Iterator[Append]:
    """Yield the function that appends rows to a table; at the end, the whole file replaces the one of its name.

    columns: names, and `str` or `int`. When the body raises, nothing of it is left and `path` stays as it was.
    Raises `UserError` naming a file that cannot be written.
    """
    if path.suffix == ".parquet":
        # Nothing is imported at the end of hours that may be missing.
        polars_for(path)
    with atomic.replacing(path) as staged:
        # What becomes parquet is CSV before.
        rows = staged.with_name(f"{staged.name}.rows")
        try:
            with _naming(path):
                file = open(rows, "w", newline="", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
            with file:
                append = FORMATS[path.suffix](file, list(columns))

                def checked(more: Rows) -> None:
                    with _naming(path):
                        append(more)

                yield checked
                with _naming(path):
                    file.flush()
            with _naming(path):
                if path.suffix == ".parquet":
                    _to_parquet(rows, staged, columns)
                else:
                    rows.replace(staged)
        finally:
            rows.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None


def _csv(file: TextIO, names: list[str]) -> Append:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    return writer.writerows


def _json_lines(file: TextIO, names: list[str]) -> Append:
    return lambda rows: file.writelines(f"{json.dumps(dict(zip(names, row, strict=True)))}\n" for row in rows)


def _texts(file: TextIO, names: list[str]) -> Append:
    return lambda rows: file.writelines(f"{text}\n" for (text,) in rows)


def _to_parquet(rows: Path, path: Path, columns: Mapping[str, type]) -> None:
    polars = polars_for(path)
    types = {str: polars.String, int: polars.Int64}
    table = polars.scan_csv(rows, schema={name: types[kind] for name, kind in columns.items()}, glob=False)
    table.sink_parquet(path)


FORMATS: dict[str, Callable[[TextIO, list[str]], Append]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".parquet": _csv,
    ".txt": _texts,
}
"""Formats that can be written, by the ends of files' names."""
