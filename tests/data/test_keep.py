import json
import operator
import time

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddm.config import Experiment
from hpcddm.data import keep
from hpcddm.data.keep import Keep
from hpcddm.errors import ConfigError, UserError
from hpcddm.pipeline.plan import plan
from hpcddm.schema import hashed, validate
from tests import pictures
from tests.helpers import tiny

ROWS = 100_000
LANGUAGES = ["en", "de", "fr", "ja", "zh-hant"]


def some(values, known) -> list:
    """The values that are known; the others are null."""
    return [value if there else None for value, there in zip(values.tolist(), known, strict=True)]


@pytest.fixture(scope="module")
def metadata():
    """What img2dataset and LAION know of pictures: numbers of several widths, texts, flags, with gaps in most."""
    draw = np.random.default_rng(0)
    words = np.array([word for caption in pictures.captions() for word in caption.split()])
    captions = np.array([" ".join(row) for row in draw.choice(words, (ROWS, 4))], dtype=object)
    aesthetic = draw.normal(5, 1, ROWS).astype(np.float32)
    aesthetic[draw.random(ROWS) < 0.1] = np.nan
    return {
        "aesthetic": aesthetic,
        "width": draw.integers(32, 4096, ROWS).astype(np.uint16),
        "height": some(draw.integers(32, 4096, ROWS), draw.random(ROWS) < 0.9),
        "punsafe": some(draw.random(ROWS), draw.random(ROWS) < 0.8),
        "sample": np.arange(ROWS) + 2**60,
        "lang": some(draw.choice(np.array(LANGUAGES, dtype=object), ROWS), draw.random(ROWS) < 0.95),
        "caption": some(captions, draw.random(ROWS) < 0.9),
        "watermarked": some(draw.random(ROWS) < 0.2, draw.random(ROWS) < 0.7),
    }


@pytest.fixture(scope="module")
def frame(metadata):
    """The same table for pandas, with types that know null from NaN, as SQL does."""
    return pandas.DataFrame(metadata).convert_dtypes()


SAME = [
    "aesthetic >= 5",
    "aesthetic >= 5 and width >= 256",
    "256 <= width <= 512",
    "not (aesthetic > 5 or punsafe > 0.5)",
    "aesthetic > 5.5 and not watermarked",
    "watermarked or lang == 'en'",
    "lang in ('en', 'de')",
    "width == height or width > 4000",
    "width / height > 1.5 or height / width > 1.5",
    f"sample == {2**60 + 1} or sample >= {2**60 + ROWS - 2}",
    "caption >= 'm' and caption < 'n'",
    "-aesthetic < -5",
]
OTHERWISE = {
    # Of a text, pandas takes null for another one.
    "lang != 'en' and punsafe < 0.1": "lang.notna() and lang != 'en' and punsafe < 0.1",
    # Of 16 bits, pandas computes modulo 2**16.
    "(width - 100) * 2 < 1000 and width % 7 == 3": "(width.astype('int64') - 100) * 2 < 1000 and width % 7 == 3",
    "width * height >= 1000000": "width.astype('int64') * height >= 1000000",
    "'face' in caption": "caption.str.contains('face', regex=False)",
    "'face' not in lower(caption)": "~caption.str.lower().str.contains('face', regex=False)",
    "length(caption) <= 20": "caption.str.len() <= 20",
    "startswith(upper(caption), 'RED')": "caption.str.upper().str.startswith('RED')",
    "endswith(caption, 'e')": "caption.str.endswith('e')",
    "abs(aesthetic - 5) < 0.5": "(aesthetic - 5).abs() < 0.5",
    "caption is null and height is not null": "caption.isna() and height.notna()",
    "lang not in ('en', 'de')": "lang.notna() and lang not in ('en', 'de')",
}


@pytest.mark.parametrize("ours, theirs", [*((text, text) for text in SAME), *OTHERWISE.items()])
def test_the_same_rows_as_pandas_query(metadata, frame, ours, theirs):
    mask = Keep(ours).mask(metadata)
    wanted = frame.query(theirs, engine="python").index.to_numpy()
    assert mask.dtype == bool and mask.shape == (ROWS,) and 0 < len(wanted) < ROWS
    assert np.array_equal(np.flatnonzero(mask), wanted)


def test_null_is_never_kept_and_its_opposite_neither():
    columns = {"a": [1, None, 3], "b": np.array([np.nan, np.nan, 2.0]), "c": [None, None, None]}
    masks = {
        "a > 2": [0, 0, 1],
        "not a > 2": [1, 0, 0],
        "a != 1": [0, 0, 1],
        "b > 0": [0, 0, 1],
        "c > 0": [0, 0, 0],
        "c == 'x' or lower(c) == 'y' or not c": [0, 0, 0],
        "a in (1, 3)": [1, 0, 1],
        "a not in (1, 2)": [0, 0, 1],
        "a > 0 or b > 0": [1, 0, 1],
        "a is null": [0, 1, 0],
        "not (b is null or c is not null)": [0, 0, 1],
        "a / (a - 1) is null": [1, 1, 0],
        "a + c is not null": [0, 0, 0],
    }
    assert {text: Keep(text).mask(columns).astype(int).tolist() for text in masks} == masks


def test_numbers_neither_wrap_nor_lose_digits():
    width = np.array([300, 40_000], dtype=np.uint16)
    assert Keep("width * width > 1000000").mask({"width": width}).tolist() == [False, True]
    assert Keep("-width < 0 and width - 50000 < 0").mask({"width": width}).all()
    big = {"sample": np.array([2**53, 2**53 + 1])}
    assert Keep(f"sample == {2**53 + 1}").mask(big).tolist() == [False, True]
    # A score that was stored with 32 bits equals the number that somebody writes.
    assert Keep("score >= 5.1 and score in (5.1, 7)").mask({"score": np.array([5.1], dtype=np.float32)}).all()


def test_names_stand_in_the_order_of_their_use():
    kept = Keep("height > 3 and (lower(caption) == 'x' or width > height) and lang is null")
    assert kept.names == ["height", "caption", "width", "lang"]


def test_a_filter_may_be_written_on_several_lines():
    kept = Keep("aesthetic >= 5\nand\n  caption == 'a  b'\n")
    assert kept.mask({"aesthetic": [6, 6], "caption": ["a  b", "a b"]}).tolist() == [True, False]


def test_what_each_condition_drops_is_counted_by_itself(metadata):
    kept = Keep("(aesthetic >= 5 and width>=256) and (lang == 'a and b' or not watermarked) and height is not null")
    parts = ["aesthetic >= 5", "width>=256", "lang == 'a and b' or not watermarked", "height is not null"]
    dropped = kept.drops(metadata)
    assert dropped == {part: ROWS - int(Keep(part).mask(metadata).sum()) for part in parts}
    assert max(dropped.values()) <= ROWS - kept.mask(metadata).sum() <= sum(dropped.values())


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 8, 20])
def test_blocks_change_nothing(metadata, monkeypatch, rows):
    columns = {name: values[:rows] for name, values in metadata.items()}
    kept = Keep("aesthetic >= 5 and (lang == 'en' or watermarked) and 1 < 2")
    whole = kept.mask(columns), kept.drops(columns)
    monkeypatch.setattr(keep, "BLOCK", 7)
    assert np.array_equal(kept.mask(columns), whole[0]) and kept.drops(columns) == whole[1]
    assert len(whole[0]) == rows


def test_text_of_any_kind_is_text():
    texts = ["red apple", "\udce9t\u00e9", None]
    for column in (texts, np.array(texts, dtype=object)):
        assert Keep("caption == 'red apple'").mask({"caption": column}).tolist() == [True, False, False]
    assert Keep("'apple' in caption").mask({"caption": np.array(["red apple", "tree"])}).tolist() == [True, False]


WRONG_DATA = {
    "no such column": ({"b": [1]}, "no column a; there are: b"),
    "text": ({"a": ["1", None]}, "3 is a number, where a text is needed .in: a > 3."),
    "flags": ({"a": [True]}, "3 is a number, where true or false is needed"),
    "both": ({"a": [None, 1, "x"]}, "column a: row 1 is 1 and row 2 is 'x': a column has values of one kind"),
    "neither": ({"a": [1, {"b": 1}]}, "column a: row 1 is {'b': 1}, which is neither a number nor a text"),
    "dates": ({"a": np.array(["2026-11-22"], dtype="datetime64[D]")}, "column a: row 0 is datetime.date"),
    "beyond 64 bits": ({"a": [2**64, -1]}, "column a: rows 0 to 1 have a whole number of more than 64 bits"),
}


@pytest.mark.parametrize("columns, message", WRONG_DATA.values(), ids=WRONG_DATA)
def test_data_that_do_not_fit_are_named(columns, message):
    with pytest.raises(UserError, match=f"^data.keep: {message}") as caught:
        Keep("a > 3").mask(columns)
    assert "\n" not in str(caught.value)


HOSTILE = {
    "__import__('os').system('x')": "__import__('os').system('x') is not understood",
    "open('/etc/passwd').read() == a": "is not understood",
    "a.__class__.__mro__[1].__subclasses__() == a": "is not understood",
    "().__class__ == a": "is not understood",
    "a in (select key from t)": "invalid syntax",
    "a in read_csv('/etc/passwd')": "read_csv('/etc/passwd') is not understood",
    "a > 1; drop": "invalid syntax",
    "a > 1 # comment\nor True": "a comment hides what is behind it",
    "a > " + "9" * 5000: "5004 characters, where 4000 are enough",
    "a > " + "9" * 3900: "is too large a number",
    "a > " + "9" * 400: "is too large a number",
    "a > 1e999": "1e999 is too large a number",
    "(" * 10_000 + "a" + ")" * 10_000: "20001 characters",
    "(" * 1_900 + "a" + ")" * 1_900: "too many nested parentheses",
    "not " * 900 + "a": "nested more than 50 levels deep",
    "-" * 3_900 + "a > 1": "nested more than 50 levels deep",
    "+".join("a" * 1_900) + " > 1": "nested more than 50 levels deep",
    "a" + ".b" * 1_900: "nested more than 50 levels deep",
    "lambda:" * 500 + "a": "nested more than 50 levels deep",
    "{" * 1_900: "too many nested parentheses",
    "9**9**9 > a": "9**9**9 is not understood",
    "a << 10000000000 > 1": "is not understood",
    "'a' * 9999999999 == a": "'a' is a text, where a number is needed",
    "a == 'x' + 'y'": "'x' is a text, where a number is needed",
    "f'{a}' == 'x'": "is not understood",
    "a == b'x'": "is not understood",
    "a == 1j": "is not understood",
    "[b for b in a] == a": "is not understood",
    "(b := a) > 1": "is not understood",
    "(yield a)": "is not understood",
    "a if b else c": "is not understood",
    "a in (*b,)": "is not understood",
    "a in ()": "() is not understood",
    "a[0] > 1": "is not understood",
    "a > 1\u202e and b": "characters that cannot be seen",
    "a\u200b > 1": "characters that cannot be seen",
    "a > 1\0": "characters that cannot be seen",
    "a \uff1e 1": "invalid character",
    "\uff41nd > 1 and": "invalid syntax",
    "max(width) > 3": "max(width) is not understood",
    "length() > 3": "is not understood",
    "length(a, b) > 3": "is not understood",
    "length(a=b) > 3": "is not understood",
    "width + 1": "width + 1 is a number, where true or false is needed",
    "'x'": "'x' is a text, where true or false is needed",
    "width > 3 and lower(lang)": "lower(lang) is a text, where true or false is needed",
    "a > 'x' + 3": "'x' is a text, where a number is needed",
    "lower(3) == 'x'": "3 is a number, where a text is needed",
    "'x' in ('x', 1) or a": "1 is a number, where a text is needed",
    "a is None": "None stands behind `is`; only null may",
    "a == null": "null stands only in",
    "a = 3": "invalid syntax",
    "a > 1 and": "invalid syntax",
    "1 < 2": "names no column",
    "": "empty",
}


@pytest.mark.parametrize("expression, message", HOSTILE.items(), ids=[text[:30] for text in HOSTILE])
def test_a_hostile_expression_is_refused_with_one_line_and_at_once(expression, message):
    started = time.perf_counter()
    with pytest.raises(UserError) as caught:
        Keep(expression)
    assert time.perf_counter() - started < 1
    line = str(caught.value)
    assert line.startswith("data.keep: ") and message in line
    assert line.isprintable() and len(line) < 600


def test_a_filter_is_read_before_anything_is_submitted(tmp_path):
    values = tiny(tmp_path).model_dump(mode="json")
    values["data"]["keep"] = "aesthetic >= 5 and width >= 256"
    assert validate(Experiment, values, "E.yaml").data.keep == values["data"]["keep"]
    values["data"]["keep"] = "width + 1"
    with pytest.raises(ConfigError) as caught:
        validate(Experiment, values, "E.yaml")
    assert str(caught.value) == "E.yaml: data.keep: width + 1 is a number, where true or false is needed"


def test_a_run_without_a_filter_is_the_run_that_it_was(tmp_path):
    assert "keep" not in hashed(tiny(tmp_path).data)
    with_filter = tiny(tmp_path, data__keep="width >= 256")
    assert hashed(with_filter.data)["keep"] == "width >= 256"
    settings = {unit.key: unit.fingerprint_settings for unit in plan(with_filter)}
    assert {key for key, unit in settings.items() if "width >= 256" in json.dumps(unit)} == {
        key for key in settings if key.startswith("shard/")
    }


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


SIGNS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
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
        | {name: st.none() | st.text("aB", max_size=2) for name in "st"}
        | {name: st.none() | st.booleans() for name in "pq"}
    ),
    max_size=6,
)


@settings(max_examples=400, deadline=None)
@given(conditions, tables)
def test_random_expressions_are_what_they_are_row_by_row(condition, table):
    # A condition of constants alone would be refused.
    kept = Keep(f"{condition!r} and (p or not p or p is null)")
    columns = {name: [row[name] for row in table] for name in "ifstpq"}
    assert kept.mask(columns).tolist() == [condition.of(row) is True for row in table]
