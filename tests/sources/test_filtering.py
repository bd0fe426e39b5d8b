"""What is known of a sample decides whether it is kept, whichever samples are looked at together."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddm.errors import UserError
from hpcddm.runs.passed_over import PassedOverItem
from hpcddm.sources.base import Split
from hpcddm.sources.filtering import WITHOUT_ROW, Filter
from hpcddm.sources.unindexed_split import MAX_TARS_READ

KEYS = ["a", "b", "c"]
ENTRIES = {"aesthetic": [1, None, 9], "pwatermark": [0.1, 0.1, None], "caption": ["x", "y", "z"]}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("key,aesthetic\na,9\nb,9\n")
    return path


def kept(chosen, groups):
    keys = []
    for rows in groups:
        own = [KEYS[row] for row in rows]
        chosen.look_up(own)
        mask = chosen.mask(own, {name: [values[row] for row in rows] for name, values in ENTRIES.items()})
        keys += [key for key, is_kept in zip(own, mask, strict=True) if is_kept]
    return keys


@pytest.mark.parametrize("groups", [[[0, 1, 2]], [[0], [1], [2]], [[0, 1], [2]]], ids=str)
def test_the_table_counts_where_it_has_a_column_whichever_samples_are_together(table, groups):
    expected = {"aesthetic >= 5": "ab", "pwatermark < 0.5": "ab", "aesthetic >= 5 and caption != 'x'": "b"}
    for expression, keys in expected.items():
        chosen = Filter(expression, table)
        assert "".join(kept(chosen, groups)) == keys and chosen.dropped == len(KEYS) - len(keys)


def test_rows_and_samples_without_one_are_counted(table):
    chosen = Filter("aesthetic >= 5", table)
    kept(chosen, [[0, 1], [2]])
    assert chosen.table_counts == {"rows": 2, "with_row": 2, "without_row": 1, "first_without_row": "c"}
    # Nothing is looked up where no column of the table is read.
    unread = Filter("caption == 'x'", table)
    assert kept(unread, [[0, 1, 2]]) == ["a"] and unread.table_counts is None


@settings(max_examples=200, deadline=None)
@given(st.sets(st.sampled_from("abcdefgh")), st.lists(st.sampled_from("abcdefgh"), unique=True), st.integers(1, 4))
def test_rows_are_those_of_samples_and_others(tmp_path_factory, rows, keys, together):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_text("key,score\n" + "".join(f"{key},1\n" for key in sorted(rows)))
    chosen = Filter("score is null or score >= 0", path)
    for start in range(0, len(keys), together):
        group = keys[start : start + together]
        chosen.look_up(group)
        assert chosen.mask(group, {}).all()
    counts = chosen.table_counts
    assert chosen.without_row == [PassedOverItem(key, WITHOUT_ROW) for key in keys if key not in rows]
    assert counts["with_row"] + len(chosen.without_row) == len(keys)
    assert counts["with_row"] == len(rows & set(keys)) and (counts["rows"] == len(rows) or not keys)


def test_without_a_table_the_entries_count_and_a_column_that_is_nowhere_is_named(table):
    assert kept(Filter("aesthetic >= 5"), [[0, 1, 2]]) == ["c"]
    with pytest.raises(UserError, match="no column beauty; there are: aesthetic, caption, key, pwatermark"):
        kept(Filter("beauty > 1 and aesthetic > 1", table), [[0, 1]])


class KeysOfTars(Split):
    """Split in tars, some of which a submission opens."""

    labels = None

    def __init__(self, keys, tar_count):
        self._keys, self.tar_count = keys, tar_count

    def __len__(self):
        return len(self._keys)

    def __getitem__(self, number):
        raise AssertionError("the keys are enough")

    def keys(self, prefix, tars):
        return [prefix + key for key in self._keys]


def test_a_table_without_any_key_is_refused_only_where_all_tars_were_opened(table):
    with pytest.raises(UserError, match=r"scores.csv: no row for any of 2 samples: its first key is 'a', .* 'x'"):
        Filter("aesthetic >= 5", table).samples_without_row([KeysOfTars(["x", "y"], MAX_TARS_READ)], "")
    items = Filter("aesthetic >= 5", table).samples_without_row([KeysOfTars(["x", "y"], MAX_TARS_READ + 1)], "")
    assert items == [PassedOverItem("x", WITHOUT_ROW), PassedOverItem("y", WITHOUT_ROW)]
