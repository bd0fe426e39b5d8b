import random
from itertools import pairwise

import h5py
import numpy as np
import pytest

from hpcddm.data import column_files
from hpcddm.data.column_files import Spool, write_columns
from hpcddm.data.columns import Column, NoSuchSample, TextColumn, count_values
from hpcddm.errors import UserError
from tests.data.refusals import assert_refused

SHAPES = {"u4": (), "u8": (), "u2": (), "i4": (), "f4": (5,), "f2": (2, 3), "i8": (3, 200)}
"""Shapes of the rows by type; those of the last one are longer than a page."""
PARTS = [[7], [1, 0, 3], [4, 4, 4], [0, 9], [2, 0], [1] * 12]
WORDS = ["", "a", "a red dress", "Ärmel und Ösen", "鞋 👟", "two\nlines", "odd \udcff byte"]


@pytest.fixture(params=PARTS, ids=str)
def parts(request, tmp_path):
    """Files of columns with so many rows each; their rows together, by name."""
    generator, whole, files = np.random.default_rng(len(request.param)), {}, {}
    for number, count in enumerate(request.param):
        drawn = {dtype: generator.integers(0, 1000, (count, *shape)) for dtype, shape in SHAPES.items()}
        columns = {dtype: values.astype(f"<{dtype}") for dtype, values in drawn.items()}
        columns["words"] = [WORDS[choice] for choice in generator.integers(0, len(WORDS), count)]
        files[tmp_path / f"{number}.h5"] = count
        write_columns(tmp_path / f"{number}.h5", columns)
        for name, values in columns.items():
            whole.setdefault(name, []).extend(values)
    return files, whole


def draws(count: int) -> list[range | list[int] | np.ndarray]:
    """Numbers as they are asked for: none, all, consecutive, in any order, repeated."""
    generator = random.Random(count)
    spans = [range(start, generator.randint(start, count)) for start in range(count)]
    anyhow = [[generator.randrange(count) for _ in range(generator.randint(0, 30))] for _ in range(20)]
    return [[], range(0), range(count), range(count - 1, -1, -1), *spans, *anyhow, np.arange(0, count, 2)]


@pytest.mark.parametrize("name", SHAPES)
def test_gathered_rows_are_those_of_the_parts_one_behind_the_other(parts, name):
    files, whole = parts
    column, rows = Column(name, files), np.array(whole[name])
    assert (len(column), column.item_shape, column.dtype) == (len(rows), SHAPES[name], np.dtype(f"<{name}"))
    for numbers in draws(len(rows)):
        gathered = column.gather(numbers)
        assert gathered.dtype == column.dtype and gathered.shape == (len(numbers), *SHAPES[name])
        assert np.array_equal(gathered, rows[np.array(numbers, dtype=int)])
    gathered[...] = 0
    assert np.array_equal(column.gather(range(len(rows))), rows)


def test_gathered_texts_are_those_that_were_written(parts):
    files, whole = parts
    column = TextColumn("words", files)
    for numbers in draws(len(column)):
        assert column.gather(numbers) == [whole["words"][number] for number in numbers]


@pytest.mark.parametrize("numbers", [[-1], range(-1, 2), [0, 12], range(3, 13)], ids=str)
def test_a_number_that_no_sample_has_is_an_error_with_the_way_out(parts, numbers):
    files, _ = parts
    for column in (Column("u4", files), TextColumn("words", files)):
        with pytest.raises(NoSuchSample, match="requested of [0-9]+: a list of numbers is of other data; fetch it"):
            column.gather(numbers)


ROWS = {"n": np.arange(9, dtype="<u2"), "v": np.arange(18.0).reshape(9, 2), "t": ["a", "", "\udcff", *"\u00e9bcdef"]}


@pytest.mark.parametrize("ends", [[9], [0, 4, 4, 9], range(1, 10)], ids=str)
def test_columns_that_come_in_blocks_are_those_that_came_at_once(tmp_path, monkeypatch, ends):
    monkeypatch.setattr(column_files, "BYTES_AT_ONCE", 20)
    write_columns(tmp_path / "whole.h5", ROWS)
    with Spool(tmp_path) as spool:
        for start, end in pairwise([0, *ends]):
            spool.append({name: rows[start:end] for name, rows in ROWS.items()})
        spool.write(tmp_path / "spooled.h5")
    assert spool.rows == 9 and spool.names == list(ROWS)
    for kind, names in ((Column, "nv"), (TextColumn, "t")):
        for name in names:
            whole, spooled = (kind(name, {tmp_path / file: 9}) for file in ("whole.h5", "spooled.h5"))
            assert np.array_equal(whole.gather(range(9)), spooled.gather(range(9)))
    assert {path.name for path in tmp_path.iterdir()} == {"whole.h5", "spooled.h5"}


UNFIT = {
    "a column missing": [{"a": 2}],
    "unequal": [{"a": 2, "b": 1}],
    "rows missing": [{"a": 2, "b": 2}],
    "too many rows": [{"a": 3, "b": 3}, {"a": 1, "b": 1}],
    "a column too many": [{"a": 3, "b": 3, "c": 3}],
}


@pytest.mark.parametrize("case", UNFIT)
def test_columns_that_are_made_together_are_whole_or_not_there(tmp_path, case):
    path, shapes = tmp_path / "x.h5", {"a": (3, 2), "b": (3, 2)}
    made = [{name: np.full((count, 2), count, "<f2") for name, count in block.items()} for block in UNFIT[case]]
    with pytest.raises(ValueError, match=r"x\.h5"):
        column_files.write_together(path, shapes, np.dtype("<f2"), made)
    assert not path.exists()
    whole = [{name: np.full((count, 2), count, "<f2") for name in shapes} for count in (1, 2)]
    column_files.write_together(path, shapes, np.dtype("<f2"), whole)
    assert Column("b", {path: 3}).gather([2, 0])[:, 0].tolist() == [2, 1]


def chunked(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("n", data=np.arange(100), chunks=(10,))


def spoilt(path):
    content = path.read_bytes()
    # The table of names of the file's root; h5py raises another error than for a file that is cut.
    path.write_bytes(content.replace(b"HEAP", b"XXXX", 1))


DAMAGES = {
    "missing": (lambda path: path.unlink(), "No such file"),
    "empty": (lambda path: path.write_bytes(b""), "no usable columns"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-50]), "no usable columns"),
    "foreign": (lambda path: path.write_bytes(b"no HDF5 at all"), "no usable columns"),
    "of fewer rows": (lambda path: write_columns(path, {"n": np.arange(99)}), r"shape \(99,\) instead of 100 rows"),
    "of other columns": (lambda path: write_columns(path, {"m": np.arange(100)}), "no column n, only m"),
    "of spoilt names": (spoilt, "no usable columns"),
    "in chunks": (chunked, "column n is not contiguous"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_part_is_named_with_the_way_out(tmp_path, damage):
    files = {tmp_path / f"{number}.h5": 100 for number in range(3)}
    for path in files:
        write_columns(path, {"n": np.arange(100)})
    spoil, reason = DAMAGES[damage]
    spoil(tmp_path / "1.h5")
    assert_refused(rf"1\.h5: .*{reason}.*remove .*manifest\.json and submit again", Column, "n", files)


def test_values_that_are_no_numbers_of_classes_are_one_line(tmp_path):
    def counts(name, values):
        write_columns(tmp_path / name, {"label": np.array(values)})
        return count_values(Column("label", {tmp_path / name: len(values)}), range(len(values)), 4).tolist()

    for number, values in enumerate(([0, 1, 4], [0, -1], [0.0, 1.0], np.zeros((2, 2), int))):
        with pytest.raises(UserError, match="column label: has values that are not whole numbers from 0 to 3"):
            counts(f"{number}.h5", values)
    assert counts("right.h5", [3, 0, 3]) == [1, 0, 0, 2]
