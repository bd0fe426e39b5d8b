"""Quotes and lines of CSV files: what is quoted is read, and a quote too many hides no row."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddm.sources.tables.tables import Table
from tests.data.refusals import assert_refused

KEYS = [f"{number:04d}" for number in range(100)]
NEVER = "a quote that opens here is never closed; close it"
BEHIND = "a cell goes on behind the quote that closes it; end it there, and write a quote"


def lines(titles, end="\n"):
    """A table of all keys, with a title of some rows by their place."""
    rows = [f"{key},6,{titles.get(place, f'thing {key}')}{end}" for place, key in enumerate(KEYS)]
    return f"key,score,title{end}" + "".join(rows)


WRONG = {
    "an inch sign": (lines({40: '"12 inch display'}), f"line 42: {NEVER}"),
    "at the end": (lines({99: '"12 inch display'}), f"line 101: {NEVER}"),
    "in the header": ('key,score,"title\n0000,6,x\n', f"line 1: {NEVER}"),
    "the last character": ('key,score,title\n0000,6,"', f"line 2: {NEVER}"),
    "behind a cell of two lines": ('key,score,title\n"0000","6\n7","x\ny', f"line 3: {NEVER}"),
    "of Windows": (lines({40: '"12 inch display'}, "\r\n"), f"line 42: {NEVER}"),
    "of an old Mac": (lines({40: '"12 inch display'}, "\r"), f"line 42: {NEVER}"),
    "behind doubled quotes": (lines({3: '"a ""b"""', 40: '"12"" display'}), f"line 42: {NEVER}"),
    "two rows that open one": (lines({40: '"12 inch', 60: '"14 inch'}), f"line 42: {BEHIND}"),
    "an inch sign in quotes": (lines({40: '"12" display"'}), f"line 42: {BEHIND}"),
    "closed in a later row": (
        lines({40: '"12 inch', 60: '14"'}),
        "line 42: a quote opens here and hides the row of 00",
    ),
    "thousands of lines": (lines({40: '"12'}) + "x,6,\n" * 50_000, "line 42: a cell that .* here is too long .*; is"),
}


@pytest.mark.parametrize("content, message", WRONG.values(), ids=WRONG)
def test_a_quote_too_many_is_named_with_the_line_where_it_opens(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_text(content, newline="")
    assert_refused(f"t.csv: (no readable table .)?{message}", Table(path).rows, ["score"], KEYS)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_quotes_that_are_meant_are_read(tmp_path, encoding):
    poem = "\n".join(f"verse {number}, with a comma, and another" for number in range(2000))
    titles = {1: f'"{poem}"', 2: 'display of 12"', 3: '"12"" display"', 4: '""', 5: '"a\r\nb"', 6: '6" x 4"'}
    (tmp_path / "t.csv").write_text(lines(titles), encoding=encoding, newline="")
    values = Table(tmp_path / "t.csv").rows(["title", "score"], [*KEYS, "no such key"]).values
    assert len(values) == len(KEYS) and {score for _, score in values.values()} == {6}
    expected = {1: poem, 2: 'display of 12"', 3: '12" display', 4: None, 5: "a\r\nb", 6: '6" x 4"'}
    assert {place: values[KEYS[place]][0] for place in expected} == expected


def test_two_columns_of_one_name_are_refused_where_one_is_read(tmp_path):
    (tmp_path / "t.csv").write_text("key,a,a,b\nx,1,2,3\n")
    assert Table(tmp_path / "t.csv").rows(["b"], ["x"]).values == {"x": (3,)}
    assert_refused("t.csv: no readable table .two columns a; rename one", Table(tmp_path / "t.csv").rows, ["a"], ["x"])


CELLS = st.text(st.sampled_from('ab 1",\r\n\u00e9'), max_size=8)


@settings(max_examples=200, deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=12), st.sampled_from(["\n", "\r\n"]), st.data())
def test_rows_are_read_or_a_quote_is_named_but_none_is_hidden(tmp_path_factory, titles, end, data):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("key", "title"), *((KEYS[place], title) for place, title in enumerate(titles))])
    keys = KEYS[: len(titles)]
    path.write_text(stream.getvalue(), newline="")
    read = Table(path).rows(["title"], keys)
    assert read.total == len(titles) and Table(path).texts("title", keys) == titles
    # A quote more, at the beginning of any row's title.
    place = data.draw(st.integers(0, len(titles) - 1))
    rows = [(KEYS[row], f'"{title}' if row == place else title) for row, title in enumerate(["x"] * len(titles))]
    path.write_text(f"key,title{end}" + "".join(f"{key},{title}{end}" for key, title in rows), newline="")
    assert_refused(f"line {place + 2}: ", Table(path).rows, ["title"], keys)
