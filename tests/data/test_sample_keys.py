"""Samples named by keys in a text file: every way to end a line, and every mistake."""

import numpy as np
import pytest

from hpcddm.data import sample_keys
from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import TextColumn
from tests.data.refusals import assert_refused

KEYS = ["a", "b c", "\N{LATIN SMALL LETTER E WITH ACUTE}", "d", "e", "\udcff"]
"""Keys of a data set, one of which is no UTF-8."""


@pytest.fixture
def column(tmp_path):
    """The keys of all samples, in two files."""
    parts = {tmp_path / "first.h5": KEYS[:4], tmp_path / "second.h5": KEYS[4:]}
    for path, keys in parts.items():
        write_columns(path, {"key": keys})
    return TextColumn("key", {path: len(keys) for path, keys in parts.items()})


@pytest.fixture
def found(tmp_path, column):
    """Resolve the content of a file to sample numbers."""

    def numbers(content: bytes) -> list[int]:
        path = tmp_path / "hats.txt"
        path.write_bytes(content)
        numbers = sample_keys.numbers_of(sample_keys.read(path), path, column, lambda done: None)
        assert numbers.dtype == np.uint32
        return numbers.tolist()

    return numbers


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_lines_may_end_in_any_way_and_come_in_any_order(found, encoding):
    for text in ("e\nb c\n", "e\r\nb c\r\n", "e\rb c\r", "b c\ne", "b c\r\n\r\ne\r\n", "\n\nb c\n\ne\n\n"):
        assert found(text.encode(encoding)) == [1, 4], text


def test_keys_are_found_to_the_byte(found):
    assert found(b"\xff\n\xc3\xa9\n") == [2, 5]


def test_keys_are_found_in_every_block(found, monkeypatch):
    monkeypatch.setattr(sample_keys, "split_into_blocks", lambda numbers: (range(n, n + 1) for n in numbers))
    assert found(b"a\nd\ne\n") == [0, 3, 4]


MISTAKES = [
    (b"", "names no sample; write one key per line"),
    (b"\n\r\n", "names no sample"),
    (b"a\nd\na\nd\na\n", r"several times in it: 2 keys .'a', 'd'.; name every sample once"),
    (b"a\nx\ny \n", r"of no training sample: 2 keys .'x', 'y '.; data"),
    (b"1\n2\n3\n4\n5\n6\n7\n", r"of no training sample: 7 keys .'1', '2', '3', '4', '5', \.\.\.."),
    ("a\n".encode("utf-16-le"), "keys of samples cannot be read .zero bytes, as in UTF-16"),
]


@pytest.mark.parametrize("content, message", MISTAKES)
def test_a_mistake_names_the_file_and_the_first_keys(found, content, message):
    assert_refused(f"hats.txt: {message}", found, content)


def test_a_missing_file_is_named(tmp_path):
    assert_refused("hats.txt: keys of samples cannot be read .No such file", sample_keys.read, tmp_path / "hats.txt")
