"""The language of `data.filter`: Python to the parser of the standard library, and never run as Python.

An expression is evaluated here, with numpy, and a form for which there is nothing here is refused. What is not known
(null) follows SQL: what is computed from it is null, unless the other half of an `and` or `or` decides.
"""

import ast
import io
import operator
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from hpcddm.config.filter.nullable_values import (
    KINDS,
    Kind,
    NullableValues,
    Values,
    logical_and,
    logical_not,
    logical_or,
    require_kind,
)
from hpcddm.errors import UserError, require

KEY = "data.filter"
NULL = "null"
MAX_CHARACTERS, MAX_NESTING = 4000, 50
"""Length of an expression and depth of its parts; what somebody means is shorter."""
LARGEST = 2**63 - 1
MAX_CHARACTERS_SHOWN = 80
"""Characters of an expression that an error shows."""

COMPARISONS: dict[type[ast.cmpop], Callable[[Values, Values], np.ndarray]] = {
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
ARITHMETIC: dict[type[ast.operator], Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Mod: np.mod,
}


@dataclass(frozen=True)
class Function:
    """A function of cells: the kinds of its arguments, and that of its result."""

    takes: tuple[Kind, ...]
    gives: Kind
    compute: Callable[..., np.ndarray]


FUNCTIONS = {
    "length": Function(("text",), "number", np.vectorize(len, otypes=[np.int64])),
    "lower": Function(("text",), "text", np.vectorize(str.lower, otypes=[object])),
    "upper": Function(("text",), "text", np.vectorize(str.upper, otypes=[object])),
    "startswith": Function(("text", "text"), "condition", np.vectorize(str.startswith, otypes=[bool])),
    "endswith": Function(("text", "text"), "condition", np.vectorize(str.endswith, otypes=[bool])),
    "abs": Function(("number",), "number", np.abs),
}
CONTAINS = Function(("text", "text"), "condition", np.vectorize(operator.contains, otypes=[bool]))
ALLOWED = (
    "columns, numbers, 'texts', == != < <= > >=, 256 <= width <= 512, and or not, + - * / %, in ('a', 'b'), "
    f"'part' in column, is null, is not null, {'() '.join(FUNCTIONS)}()"
)


def parse(source: str) -> ast.expr:
    """Parse an expression; raises `UserError` for one that is none, or is too long or too deep to be meant."""
    _check_characters(source)
    place = f"{KEY}: {shortened(source)}"
    too_deep = f"{place}: nested more than {MAX_NESTING} levels deep"
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise UserError(f"{place}: {error.msg}; it may have: {ALLOWED}") from None
    except (MemoryError, RecursionError):
        raise UserError(too_deep) from None
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    require(all(token.type != tokenize.COMMENT for token in tokens), f"{place}: a comment hides what is behind it")
    parts: list[ast.AST] = [tree]
    for _ in range(MAX_NESTING):
        parts = [inner for part in parts for inner in ast.iter_child_nodes(part)]
    require(not parts, too_deep)
    return tree


def _check_characters(source: str) -> None:
    place = f"{KEY}: {ascii(shortened(source))}"
    require(bool(source), f"{KEY}: empty; it may have: {ALLOWED}")
    require(len(source) <= MAX_CHARACTERS, f"{place}: {len(source)} characters, where {MAX_CHARACTERS} are enough")
    # Marks that turn the direction of writing, or take no room, make an expression look like another.
    require(source.isprintable(), f"{place}: has invisible characters")


def shortened(source: str) -> str:
    """Return as much of an expression as an error shows."""
    return source if len(source) <= MAX_CHARACTERS_SHOWN else f"{source[:MAX_CHARACTERS_SHOWN]}..."


class Evaluator(ast.NodeVisitor):
    """Evaluation of a parsed expression for some rows; a form that has no method here is refused.

    column: gives the values of a column.
    """

    def __init__(self, source: str, column: Callable[[str], NullableValues]) -> None:
        self._source, self._column = source, column

    def evaluate(self, kind: Kind, node: ast.expr) -> NullableValues:
        """Evaluate a part; raises `UserError` for one that is not understood, or is of another kind."""
        return self._taken_as(kind, self.visit(node), node)

    def generic_visit(self, node: ast.AST) -> NullableValues:
        raise self._error(node, f"is not understood; it may have: {ALLOWED}")

    def visit_Constant(self, node: ast.Constant) -> NullableValues:
        value = node.value
        if not isinstance(value, int | float | str):
            return self.generic_visit(node)
        if not isinstance(value, str) and abs(value) > LARGEST:
            raise self._error(node, "is too large a number")
        return NullableValues(KINDS[type(value)], value, np.True_)

    def visit_Name(self, node: ast.Name) -> NullableValues:
        if node.id == NULL:
            raise self._error(node, "may appear only in `column is null` and `column is not null`")
        return self._column(node.id)

    def visit_BoolOp(self, node: ast.BoolOp) -> NullableValues:
        join = logical_and if isinstance(node.op, ast.And) else logical_or
        return reduce(join, [self.evaluate("condition", part) for part in node.values])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> NullableValues:
        if isinstance(node.op, ast.Not):
            return logical_not(self.evaluate("condition", node.operand))
        if not isinstance(node.op, ast.USub):
            return self.generic_visit(node)
        number = self.evaluate("number", node.operand)
        # A constant stays a Python number, which numpy compares in the column's own precision.
        values = number.values if isinstance(number.values, int | float) else _exact(number.values)
        return NullableValues("number", -values, number.known)

    def visit_BinOp(self, node: ast.BinOp) -> NullableValues:
        if type(node.op) not in ARITHMETIC:
            return self.generic_visit(node)
        left, right = self.evaluate("number", node.left), self.evaluate("number", node.right)
        with np.errstate(all="ignore"):
            values = ARITHMETIC[type(node.op)](_exact(left.values), _exact(right.values))
        # A quotient by zero is null.
        return NullableValues("number", values, left.known & right.known & np.isfinite(values))

    def visit_Call(self, node: ast.Call) -> NullableValues:
        function = FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if function is None or node.keywords or len(node.args) != len(function.takes):
            return self.generic_visit(node)
        return self._call(function, node.args)

    def visit_Compare(self, node: ast.Compare) -> NullableValues:
        terms = [node.left, *node.comparators]
        pairs = zip(terms, node.ops, node.comparators, strict=False)
        return reduce(logical_and, [self._compare(left, sign, right) for left, sign, right in pairs])

    def _compare(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> NullableValues:
        """Compare two terms of a chain."""
        if isinstance(sign, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Name) and right.id == NULL):
                raise self._error(right, "follows `is`; only null may")
            known = self.visit(left).known
            return NullableValues("condition", known if isinstance(sign, ast.IsNot) else ~known, np.ones_like(known))
        if isinstance(sign, ast.In | ast.NotIn):
            found = self._is_in(left, right)
            return found if isinstance(sign, ast.In) else logical_not(found)
        return self._by_sign(COMPARISONS[type(sign)], left, self.visit(left), right)

    def _is_in(self, left: ast.expr, right: ast.expr) -> NullableValues:
        """Tell where a value is one of several, or a text is a part of another."""
        if isinstance(right, ast.Tuple | ast.List) and right.elts:
            cells = self.visit(left)
            return reduce(logical_or, [self._by_sign(np.equal, left, cells, choice) for choice in right.elts])
        return self._call(CONTAINS, [right, left])

    def _by_sign(self, compare: Callable, left: ast.expr, cells: NullableValues, right: ast.expr) -> NullableValues:
        other = self.visit(right)
        kinds = [cells.kind, other.kind]
        # Of a number and a column of texts, the column is what somebody did not expect.
        kind = "number" if "number" in kinds and (cells.example or other.example) else cells.kind or other.kind
        kind = kind or "number"
        cells, other = self._taken_as(kind, cells, left), self._taken_as(kind, other, right)
        return NullableValues("condition", compare(cells.values, other.values), cells.known & other.known)

    def _call(self, function: Function, arguments: Sequence[ast.expr]) -> NullableValues:
        cells = [self.evaluate(kind, argument) for kind, argument in zip(function.takes, arguments, strict=True)]
        values = function.compute(*(argument.values for argument in cells))
        return NullableValues(function.gives, values, reduce(np.logical_and, [argument.known for argument in cells]))

    def _taken_as(self, kind: Kind, cells: NullableValues, node: ast.expr) -> NullableValues:
        try:
            return require_kind(kind, cells)
        except TypeError as error:
            raise self._error(node, str(error)) from None

    def _error(self, node: ast.AST, problem: str) -> UserError:
        part = ast.get_source_segment(self._source, node) or self._source
        whole = "" if part == self._source else f" (in: {shortened(self._source)})"
        return UserError(f"{KEY}: {shortened(part)} {problem}{whole}")


def _exact(values: Values) -> np.ndarray:
    """Return numbers as float64: the product of two columns of 16 bits needs more than 16."""
    return np.asarray(values, dtype=np.float64)
