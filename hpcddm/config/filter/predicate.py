"""The filter `data.filter`, such as `aesthetic >= 5 and width >= 256`: which samples are kept, and why."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial

import numpy as np
from jaxtyping import Bool

from hpcddm.config.filter.expressions import KEY, Evaluator, parse, shortened
from hpcddm.config.filter.nullable_values import NullableValues, empty_column, read_column
from hpcddm.errors import UserError, require

BLOCK = 2**16
"""Rows that are in work at a time."""
Columns = Mapping[str, np.ndarray | Sequence[object]]
"""Numbers, texts, True and False of every row, by the columns' names; None and NaN are null."""


class Predicate:
    """A filter: `names` are the columns that it reads, in the order in which they are first named.

    Raises `UserError` naming what in the expression is wrong, before there are any data.
    """

    def __init__(self, expression: str) -> None:
        self._source = " ".join(expression.splitlines()).strip()
        self._conditions = _joined_by_and(parse(self._source))
        names: dict[str, None] = {}

        def noted(name: str) -> NullableValues:
            names[name] = None
            return empty_column(None)

        # An evaluation of no rows finds every form and every kind that is wrong.
        self._evaluate(noted)
        self.column_names = list(names)
        require(bool(names), f"{KEY}: {shortened(self._source)}: names no column; it would keep all samples or none")

    def check_kinds(self, kinds: Mapping[str, NullableValues]) -> None:
        """Raise `UserError` naming a column of another kind than the expression needs.

        kinds: empty columns (`empty_column`) that have the known kinds; other columns may be of any kind.
        """
        self._evaluate(lambda name: kinds.get(name, empty_column(None)))

    def mask(self, columns: Columns) -> Bool[np.ndarray, " n"]:
        """Tell which rows are kept: those for which the expression is true, and neither false nor null.

        Raises `UserError` naming a column that is missing or of another kind than the expression needs.
        """
        masks = [np.logical_and.reduce(held) for held in self._blocks(columns)]
        return np.concatenate([np.zeros(0, dtype=bool), *masks])

    def count_dropped(self, columns: Columns) -> dict[str, int]:
        """Count the rows that each of the conditions that `and` joins would drop by itself, by the condition's text."""
        texts = [ast.get_source_segment(self._source, node) or "" for node in self._conditions]
        dropped = dict.fromkeys(texts, 0)
        for held in self._blocks(columns):
            dropped = {text: dropped[text] + int(np.sum(~mask)) for text, mask in zip(texts, held, strict=True)}
        return dropped

    def _blocks(self, columns: Columns) -> Iterator[list[Bool[np.ndarray, " n"]]]:
        """Yield, block by block of rows, which of them fulfil each of the conditions that `and` joins."""
        for name in self.column_names:
            require(name in columns, f"{KEY}: no column {name}; there are: {', '.join(sorted(columns))}")
        counts = {len(columns[name]) for name in self.column_names}
        require(len(counts) <= 1, f"columns of one table have equally many rows, not {sorted(counts)}", ValueError)
        for start in range(0, max(counts), BLOCK):
            rows = range(start, min(start + BLOCK, max(counts)))
            held = self._evaluate(cache(partial(_read, columns, rows)))
            yield [np.broadcast_to(condition.true, len(rows)) for condition in held]

    def _evaluate(self, column: Callable[[str], NullableValues]) -> list[NullableValues]:
        evaluation = Evaluator(self._source, column)
        return [evaluation.evaluate("condition", node) for node in self._conditions]


def _read(columns: Columns, rows: range, name: str) -> NullableValues:
    def place(row: int) -> str:
        number = rows.start + row
        return f"sample {columns['key'][number]}" if "key" in columns else f"row {number}"

    try:
        return read_column(columns[name][rows.start : rows.stop], place)
    except TypeError as error:
        raise UserError(f"{KEY}: column {name}: {error}") from None


def _joined_by_and(node: ast.expr) -> list[ast.expr]:
    """List the conditions that must all hold."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [condition for part in node.values for condition in _joined_by_and(part)]
    return [node]
