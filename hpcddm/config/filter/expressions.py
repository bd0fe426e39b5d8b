"""The language of `data.keep`: Python to the parser of the standard library, and never run as Python.

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

from hpcddm.config.filter.cells import KINDS, Cells, Kind, Values, both, either, opposite, taken_as
from hpcddm.errors import UserError, require

KEY = "data.keep"
NULL = "null"
MOST_CHARACTERS, MOST_NESTED = 4000, 50
"""Length of an expression and depth of its parts; what somebody means is shorter."""
LARGEST = 2**63 - 1
SHOWN = 80
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
    too_deep = f"{place}: nested more than {MOST_NESTED} levels deep"
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise UserError(f"{place}: {error.msg}; it may have: {ALLOWED}") from None
    except (MemoryError, RecursionError):
        raise UserError(too_deep) from None
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    require(all(token.type != tokenize.COMMENT for token in tokens), f"{place}: a comment hides what is behind it")
    parts: list[ast.AST] = [tree]
    for _ in range(MOST_NESTED):
        parts = [inner for part in parts for inner in ast.iter_child_nodes(part)]
    require(not parts, too_deep)
    return tree


def _check_characters(source: str) -> None:
    place = f"{KEY}: {ascii(shortened(source))}"
    require(bool(source), f"{KEY}: empty; it may have: {ALLOWED}")
    require(len(source) <= MOST_CHARACTERS, f"{place}: {len(source)} characters, where {MOST_CHARACTERS} are enough")
    # Marks that turn the direction of writing, or take no room, make an expression look like another.
    require(source.isprintable(), f"{place}: has characters that cannot be seen")


def shortened(source: str) -> str:
    """Return as much of an expression as an error shows."""
    return source if len(source) <= SHOWN else f"{source[:SHOWN]}..."


class Evaluation(ast.NodeVisitor):
    """Evaluation of a parsed expression for some rows; a form that has no method here is refused.

    column: gives the values of a column.
    """

    def __init__(self, source: str, column: Callable[[str], Cells]) -> None:
        self._source, self._column = source, column

    def of_kind(self, kind: Kind, node: ast.expr) -> Cells:
        """Evaluate a part; raises `UserError` for one that is not understood, or is of another kind."""
        return self._taken_as(kind, self.visit(node), node)

    def generic_visit(self, node: ast.AST) -> Cells:
        raise self._error(node, f"is not understood; it may have: {ALLOWED}")

    def visit_Constant(self, node: ast.Constant) -> Cells:
        value = node.value
        if not isinstance(value, int | float | str):
            return self.generic_visit(node)
        if not isinstance(value, str) and abs(value) > LARGEST:
            raise self._error(node, "is too large a number")
        return Cells(KINDS[type(value)], value, np.True_)

    def visit_Name(self, node: ast.Name) -> Cells:
        if node.id == NULL:
            raise self._error(node, "stands only in `column is null` and `column is not null`")
        return self._column(node.id)

    def visit_BoolOp(self, node: ast.BoolOp) -> Cells:
        join = both if isinstance(node.op, ast.And) else either
        return reduce(join, [self.of_kind("condition", part) for part in node.values])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Cells:
        if isinstance(node.op, ast.Not):
            return opposite(self.of_kind("condition", node.operand))
        if not isinstance(node.op, ast.USub):
            return self.generic_visit(node)
        number = self.of_kind("number", node.operand)
        # A constant stays a Python number, which numpy compares in the column's own precision.
        values = number.values if isinstance(number.values, int | float) else _exact(number.values)
        return Cells("number", -values, number.known)

    def visit_BinOp(self, node: ast.BinOp) -> Cells:
        if type(node.op) not in ARITHMETIC:
            return self.generic_visit(node)
        left, right = self.of_kind("number", node.left), self.of_kind("number", node.right)
        with np.errstate(all="ignore"):
            values = ARITHMETIC[type(node.op)](_exact(left.values), _exact(right.values))
        # A quotient by zero is null.
        return Cells("number", values, left.known & right.known & np.isfinite(values))

    def visit_Call(self, node: ast.Call) -> Cells:
        function = FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if function is None or node.keywords or len(node.args) != len(function.takes):
            return self.generic_visit(node)
        return self._call(function, node.args)

    def visit_Compare(self, node: ast.Compare) -> Cells:
        terms = [node.left, *node.comparators]
        pairs = zip(terms, node.ops, node.comparators, strict=False)
        return reduce(both, [self._compare(left, sign, right) for left, sign, right in pairs])

    def _compare(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> Cells:
        """Compare two terms of a chain."""
        if isinstance(sign, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Name) and right.id == NULL):
                raise self._error(right, "stands behind `is`; only null may")
            known = self.visit(left).known
            return Cells("condition", known if isinstance(sign, ast.IsNot) else ~known, np.ones_like(known))
        if isinstance(sign, ast.In | ast.NotIn):
            found = self._is_in(left, right)
            return found if isinstance(sign, ast.In) else opposite(found)
        return self._by_sign(COMPARISONS[type(sign)], left, self.visit(left), right)

    def _is_in(self, left: ast.expr, right: ast.expr) -> Cells:
        """Tell where a value is one of several, or a text is a part of another."""
        if isinstance(right, ast.Tuple | ast.List) and right.elts:
            cells = self.visit(left)
            return reduce(either, [self._by_sign(np.equal, left, cells, choice) for choice in right.elts])
        return self._call(CONTAINS, [right, left])

    def _by_sign(self, compare: Callable, left: ast.expr, cells: Cells, right: ast.expr) -> Cells:
        other = self.visit(right)
        kinds = [cells.kind, other.kind]
        # Of a number and a column of texts, the column is what somebody did not expect.
        kind = "number" if "number" in kinds and (cells.example or other.example) else cells.kind or other.kind
        kind = kind or "number"
        cells, other = self._taken_as(kind, cells, left), self._taken_as(kind, other, right)
        return Cells("condition", compare(cells.values, other.values), cells.known & other.known)

    def _call(self, function: Function, arguments: Sequence[ast.expr]) -> Cells:
        cells = [self.of_kind(kind, argument) for kind, argument in zip(function.takes, arguments, strict=True)]
        values = function.compute(*(argument.values for argument in cells))
        return Cells(function.gives, values, reduce(np.logical_and, [argument.known for argument in cells]))

    def _taken_as(self, kind: Kind, cells: Cells, node: ast.expr) -> Cells:
        try:
            return taken_as(kind, cells)
        except TypeError as error:
            raise self._error(node, str(error)) from None

    def _error(self, node: ast.AST, problem: str) -> UserError:
        part = ast.get_source_segment(self._source, node) or self._source
        whole = "" if part == self._source else f" (in: {shortened(self._source)})"
        return UserError(f"{KEY}: {shortened(part)} {problem}{whole}")


def _exact(values: Values) -> np.ndarray:
    """Return numbers as float64: the product of two columns of 16 bits needs more than 16."""
    return np.asarray(values, dtype=np.float64)
