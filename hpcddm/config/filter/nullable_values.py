"""Values of some rows of a table, as expressions compute with them: of one kind, and null where nothing is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool

Kind = Literal["number", "text", "condition"]
KINDS: dict[type, Kind] = {bool: "condition", int: "number", float: "number", str: "text"}
LETTERS: dict[str, Kind] = {"b": "condition", "i": "number", "u": "number", "f": "number"}
"""Kinds of numpy's types, by the letters of `dtype.kind`."""
FILLERS = {"number": 0, "text": "", "condition": False}
"""Values that stand where nothing is known."""
NOUNS = {"number": "a number", "text": "a text", "condition": "true or false"}
MISSING = "a missing value is an empty cell of CSV, or null"
"""Advice where a text is among numbers."""
Values = np.ndarray | np.generic | float | str | bool
"""Values of some rows, or the one value that all have."""
KnownMask = Bool[np.ndarray, "..."] | np.bool


@dataclass(frozen=True)
class NullableValues:
    """Values of one kind; kind None: nothing is known of any row.

    values: (N,), or one for all rows; known: (N,), or one for all rows. A value that is not known is arbitrary.
    example: place and value of one that makes a column a text, for an error.
    """

    kind: Kind | None
    values: Values
    known: KnownMask
    example: str = ""

    @property
    def true(self) -> KnownMask:
        """Rows for which the condition is known to hold."""
        return np.logical_and(self.values, self.known)

    @property
    def false(self) -> KnownMask:
        """Rows for which the condition is known not to hold."""
        return np.logical_and(np.logical_not(self.values), self.known)


def all_null(count: int) -> NullableValues:
    """Return rows without known values."""
    return NullableValues(None, np.zeros(count), np.zeros(count, dtype=bool))


def empty_column(kind: Kind | None, example: str = "") -> NullableValues:
    """Return a column of a known kind without rows."""
    return NullableValues(kind, _array(kind or "number", []), np.zeros(0, dtype=bool), example)


def require_kind(kind: Kind, cells: NullableValues) -> NullableValues:
    """Return cells of a kind; cells without known values fit any. Raises TypeError for another kind."""
    if cells.kind is None:
        return NullableValues(kind, _array(kind, [FILLERS[kind]] * cells.known.size), cells.known)
    if cells.kind != kind:
        reason = f": {cells.example} is not {NOUNS[kind]}; {MISSING}" if cells.example and kind == "number" else ""
        raise TypeError(f"is {NOUNS[cells.kind]}, where {NOUNS[kind]} is needed{reason}")
    return cells


def logical_and(one: NullableValues, other: NullableValues) -> NullableValues:
    """Join two conditions by `and`: it is false, and no null, where one of them is false."""
    true = one.true & other.true
    return NullableValues("condition", true, true | one.false | other.false)


def logical_or(one: NullableValues, other: NullableValues) -> NullableValues:
    """Join two conditions by `or`: it is true, and no null, where one of them is true."""
    true = one.true | other.true
    return NullableValues("condition", true, true | (one.false & other.false))


def logical_not(cells: NullableValues) -> NullableValues:
    """Return where a condition does not hold: null stays null."""
    return NullableValues("condition", np.logical_not(cells.values), cells.known)


def read_column(values: np.ndarray | Sequence[object], place: Callable[[int], str]) -> NullableValues:
    """Read values of a column, None and NaN as null.

    place: function that names a row, for an error. Raises TypeError for values of no kind, or of several.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in LETTERS:
        known = np.ones(len(values), dtype=bool) if values.dtype.kind != "f" else ~np.isnan(values)
        return NullableValues(LETTERS[values.dtype.kind], values, known)
    cells = values.tolist() if isinstance(values, np.ndarray) else values
    # NaN is the one value that differs from itself.
    known = np.array([value is not None and value == value for value in cells], dtype=bool)
    kinds = {KINDS.get(type(value)) for value in cells if value is not None}
    if not kinds:
        return all_null(len(cells))
    kind = kinds.pop()
    if kinds or kind is None:
        raise TypeError(_mixture(cells, place))
    array = _array(kind, [value if there else FILLERS[kind] for value, there in zip(cells, known, strict=True)])
    if kind == "number" and array.dtype.kind not in LETTERS:
        _, row = max((abs(value), row) for row, value in enumerate(cells) if known[row])
        raise TypeError(f"{place(row)}: {cells[row]} has more than 64 bits")
    first = int(known.argmax())
    return NullableValues(kind, array, known, f"{place(first)}: {cells[first]!r:.40}" if kind == "text" else "")


def _array(kind: Kind, values: Sequence[object]) -> np.ndarray:
    return np.array(values, dtype=object if kind == "text" else None)


def _mixture(values: Sequence[object], place: Callable[[int], str]) -> str:
    """Name the first value of every kind."""
    first: dict[Kind | None, str] = {}
    for row, value in enumerate(values):
        kind = KINDS.get(type(value))
        if value is not None and kind not in first:
            first[kind] = f"{place(row)}: {value!r:.40}"
    return mixed_kinds_error(first)


def mixed_kinds_error(first: Mapping[Kind | None, str]) -> str:
    """Return an error about values of several kinds, or of none; first: place and value of the first of each kind."""
    if None in first:
        return f"{first[None]} is neither a number nor a text, nor true or false"
    if first.keys() == {"number", "text"}:
        return f"{first['text']} is not a number, and {first['number']} is; {MISSING}"
    return f"{' and '.join(first.values())}: a column has values of one kind"
