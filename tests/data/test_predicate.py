"""The filter: null, numbers of every width, what is counted and refused, and its place in an experiment."""

import json

import numpy as np
import pytest

from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.filter.predicate import Predicate
from hpcddm.config.schema import settings_to_hash
from hpcddm.errors import ConfigError
from hpcddm.pipeline.unit_graph import plan_units
from tests.data.refusals import assert_refused
from tests.helpers import tiny

ROWS = 1000


@pytest.fixture(scope="module")
def metadata():
    """What img2dataset and LAION know of pictures, with gaps."""
    draw = np.random.default_rng(0)
    aesthetic = draw.normal(5, 1, ROWS).astype(np.float32)
    aesthetic[draw.random(ROWS) < 0.1] = np.nan
    columns = {
        "height": [None, *range(32, 64)],
        "lang": ["en", "de", "a and b", None],
        "watermarked": [False, True, None],
    }
    chosen = {
        name: [values[place] for place in draw.integers(len(values), size=ROWS)] for name, values in columns.items()
    }
    return {"aesthetic": aesthetic, "width": draw.integers(32, 4096, ROWS).astype(np.uint16)} | chosen


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
    assert {text: Predicate(text).mask(columns).astype(int).tolist() for text in masks} == masks


def test_numbers_neither_wrap_nor_lose_digits():
    width = np.array([300, 40_000], dtype=np.uint16)
    assert Predicate("width * width > 1000000").mask({"width": width}).tolist() == [False, True]
    assert Predicate("-width < 0 and width - 50000 < 0").mask({"width": width}).all()
    big = {"sample": np.array([2**53, 2**53 + 1])}
    assert Predicate(f"sample == {2**53 + 1}").mask(big).tolist() == [False, True]
    # A score that was stored with 32 bits equals the number that somebody writes.
    assert Predicate("score >= 5.1 and score in (5.1, 7)").mask({"score": np.array([5.1], dtype=np.float32)}).all()


def test_what_each_condition_drops_is_counted_by_itself(metadata):
    parts = ["aesthetic >= 5", "width>=256", "lang == 'a and b' or not watermarked", "height is not null"]
    kept = Predicate(f"({parts[0]} and {parts[1]}) and ({parts[2]}) and {parts[3]}")
    dropped = kept.count_dropped(metadata)
    assert dropped == {part: ROWS - int(Predicate(part).mask(metadata).sum()) for part in parts}
    assert max(dropped.values()) <= ROWS - kept.mask(metadata).sum() <= sum(dropped.values())


def test_text_of_any_kind_is_text():
    texts = ["red apple", "\udce9t\u00e9", None]
    for column in (texts, np.array(texts, dtype=object)):
        assert Predicate("caption == 'red apple'").mask({"caption": column}).tolist() == [True, False, False]
    assert Predicate("'apple' in caption").mask({"caption": np.array(["red apple", "tree"])}).tolist() == [True, False]


WRONG_DATA = {
    "no such column": ({"b": [1]}, "no column a; there are: b"),
    "text": ({"a": ["1", None]}, "a is a text, where a number is needed: row 0: '1' is not a number; .* .in: a > 3."),
    "flags": ({"a": [True]}, "3 is a number, where true or false is needed"),
    "both": ({"a": [None, 1, "x"]}, "column a: row 2: 'x' is not a number, and row 1: 1 is"),
    "neither": ({"a": [1, {"b": 1}]}, "column a: row 1: {'b': 1} is neither a number nor a text"),
    "dates": ({"a": np.array(["2026-11-22"], dtype="datetime64[D]")}, "column a: row 0: datetime.date"),
    "beyond 64 bits": ({"a": [2**64, -1]}, "column a: row 0: 18446744073709551616 has more than 64 bits"),
}


@pytest.mark.parametrize("columns, message", WRONG_DATA.values(), ids=WRONG_DATA)
def test_data_that_do_not_fit_are_named(columns, message):
    assert_refused(f"^data.filter: {message}", Predicate("a > 3").mask, columns)


def test_a_filter_is_read_before_anything_is_submitted(tmp_path):
    values = tiny(tmp_path).model_dump(mode="json")
    values["data"]["filter"] = "aesthetic >= 5 and width >= 256"
    assert validate_experiment(values, "E.yaml").data.filter == values["data"]["filter"]
    values["data"]["filter"] = "width + 1"
    with pytest.raises(ConfigError) as caught:
        validate_experiment(values, "E.yaml")
    assert str(caught.value) == "E.yaml: data.filter: width + 1 is a number, where true or false is needed"


def test_a_run_without_a_filter_is_the_run_that_it_was(tmp_path):
    assert "keep" not in settings_to_hash(tiny(tmp_path).data)
    with_filter = tiny(tmp_path, data__filter="width >= 256")
    assert settings_to_hash(with_filter.data)["filter"] == "width >= 256"
    settings = {unit.key: unit.fingerprint_settings for unit in plan_units(with_filter)}
    hashed = {key for key, unit in settings.items() if "width >= 256" in json.dumps(unit)}
    assert hashed == {key for key in settings if key.startswith("shard/")}
