"""Random expressions of the filter against what they are row by row, with SQL's null."""

import operator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddm.config.filter.predicate import Predicate


class Term:
    """A part of an expression: how it is written, and what it is for one row."""

    def __init__(self, template, compute, *parts):
        self.template, self.compute, self.parts = template, compute, parts

    def __repr__(self):
        return self.template.format(*self.parts)

    def of(self, row):
        return self.compute(row, *(part.of(row) for part in self.parts))


def strict(compute):
    """Null of null."""
    return lambda row, *values: None if None in values else compute(*values)


def both(row, *halves):
    return False if False in halves else None if None in halves else True


def either(row, *halves):
    return True if True in halves else None if None in halves else False


def chained(first, second):
    return lambda row, a, b, c: both(row, strict(first)(row, a, b), strict(second)(row, b, c))


def term(*kinds):
    """Choose one of some forms, (template, meaning, strategies of its parts)."""
    return st.one_of(
        *(st.tuples(*parts).map(lambda chosen, form=(how, what): Term(*form, *chosen)) for how, what, *parts in kinds)
    )


def column(name):
    return name, lambda row: row[name]


def constant(value):
    return repr(value), lambda row: value


SIGNS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
ARITHMETIC = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else None,
    "%": lambda a, b: float(a) % b if b else None,
}


def texts_above(inner):
    return term(("lower({})", strict(str.lower), inner), ("upper({})", strict(str.upper), inner))


def numbers_above(inner):
    pairs = [(f"({{}} {sign} {{}})", strict(compute), inner, inner) for sign, compute in ARITHMETIC.items()]
    return term(*pairs, ("-{}", strict(operator.neg), inner), ("abs({})", strict(abs), inner))


texts = st.recursive(term(column("s"), column("t"), *map(constant, ["a", "B", "", "aB"])), texts_above, max_leaves=2)
lengths = term(("length({})", strict(len), texts))
numbers = st.recursive(
    term(column("i"), column("f"), *map(constant, [0, 1, 3, 0.5, 2.5])) | lengths, numbers_above, max_leaves=4
)


def leaves(terms):
    """Conditions on numbers, or on texts."""
    return term(
        *((f"{{}} {sign} {{}}", strict(compare), terms, terms) for sign, compare in SIGNS.items()),
        ("{} < {} <= {}", chained(operator.lt, operator.le), terms, terms, terms),
        ("{} in ({}, {})", lambda row, a, *b: either(row, *(strict(operator.eq)(row, a, c) for c in b)), *[terms] * 3),
        ("{} not in [{}]", strict(operator.ne), terms, terms),
        ("{} is null", lambda row, value: value is None, terms),
        ("{} is not null", lambda row, value: value is not None, terms),
    )


def conditions_above(inner):
    return term(
        ("({} and {})", both, inner, inner),
        ("({} or {})", either, inner, inner),
        ("(not {})", strict(operator.not_), inner),
    )


conditions = st.recursive(
    leaves(numbers).map(lambda leaf: Term("({})", lambda row, value: value, leaf))
    | leaves(texts).map(lambda leaf: Term("({})", lambda row, value: value, leaf))
    | term(
        column("p"),
        column("q"),
        ("({} in {})", strict(lambda part, text: part in text), texts, texts),
        ("startswith({}, {})", strict(str.startswith), texts, texts),
        ("endswith({}, {})", strict(str.endswith), texts, texts),
    ),
    conditions_above,
    max_leaves=5,
)
tables = st.lists(
    st.fixed_dictionaries(
        {"i": st.none() | st.integers(-3, 3), "f": st.none() | st.sampled_from([-1.5, 0.0, 0.5, 2.0, 2.5])}
        | {name: st.none() | st.text("aB\u00e9", max_size=2) for name in "st"}
        | {name: st.none() | st.booleans() for name in "pq"}
    ),
    max_size=6,
)


@settings(max_examples=400, deadline=None)
@given(conditions, tables)
def test_random_expressions_are_what_they_are_row_by_row(condition, table):
    # A condition of constants alone would be refused.
    kept = Predicate(f"{condition!r} and (p or not p or p is null)")
    columns = {name: [row[name] for row in table] for name in "ifstpq"}
    expected = [condition.of(row) is True for row in table]
    assert kept.mask(columns).tolist() == expected
    # Arrays of narrow types are no others than lists; only what is known of all has such a type.
    types = {"i": np.int8, "f": np.float32, "p": bool, "q": bool}
    known = {name: values for name, values in columns.items() if None not in values}
    arrays = {name: np.array(values, types.get(name, object)) for name, values in known.items()}
    assert kept.mask(columns | arrays).tolist() == expected
