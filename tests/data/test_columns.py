import os
import random
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpcddm.data import column_files
from hpcddm.data.column_files import RowBlocks, Spool, write_columns
from hpcddm.data.columns import Column, NoSuchSample, TextColumn, count_values
from hpcddm.errors import UserError
from tests.data.refusals import assert_refused
from tests.helpers import python

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


def test_a_block_of_other_columns_is_an_error(tmp_path):
    with Spool(tmp_path) as spool:
        spool.append({"n": np.arange(3), "t": ["x"] * 3})
        for block in ({"n": np.arange(2)}, {"t": ["x"], "n": np.arange(1)}, {"n": np.arange(2), "t": [""]}):
            with pytest.raises(ValueError, match="n, t"):
                spool.append(block)


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


def test_equal_columns_are_equal_bytes(tmp_path):
    for name in "ab":
        write_columns(tmp_path / name, {"n": np.arange(9), "t": ["x"] * 9})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_columns_that_do_not_fit_leave_the_file_as_it_was(tmp_path):
    write_columns(tmp_path / "x.h5", {"a": np.ones(2)})
    missing_rows = RowBlocks((4,), np.dtype("<u2"), [np.zeros(3, "<u2")])
    for unfit in ({"a": np.zeros(3), "b": ["x"]}, {"a": missing_rows}):
        with pytest.raises(ValueError, match="rows"):
            write_columns(tmp_path / "x.h5", unfit)
        assert Column("a", {tmp_path / "x.h5": 2}).gather([1]).tolist() == [1] and len(list(tmp_path.iterdir())) == 1


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


def test_columns_of_one_file_share_one_open_file_which_goes_with_them(tmp_path):
    files = {tmp_path / f"{number}.h5": 5 for number in range(4)}
    for path in files:
        write_columns(path, {name: np.arange(5) for name in "abc"})

    def opened():
        links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink() and link.exists()]
        return sorted(Path(name) for name in links if name.startswith(str(tmp_path)))

    columns = [Column(name, files) for name in "abc"]
    assert opened() == sorted(files)
    del columns
    assert opened() == []


MANY = """
import resource, sys
from pathlib import Path
from hpcddm.data.columns import Column

resource.setrlimit(resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(len(Column("n", {Path(path): 1 for path in sys.argv[1:]})))
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
Column("n", {Path(path).with_name(f"other-{Path(path).name}"): 1 for path in sys.argv[1:]})
"""


def test_as_many_files_are_open_as_the_system_allows(tmp_path):
    paths = [tmp_path / f"{number}.h5" for number in range(40)]
    for path in paths:
        write_columns(path, {"n": np.arange(1)})
        write_columns(path.with_name(f"other-{path.name}"), {"n": np.arange(1)})
    done = python(MANY, *paths)
    assert done.stdout == "40\n", done.stderr
    # A file that only cannot be opened is not to be made anew.
    assert "raise the limit, 'ulimit -n'" in done.stderr and "manifest" not in done.stderr.splitlines()[-1]


MEMORY = """
import re, sys
from pathlib import Path
import numpy as np
from hpcddm.data.columns import Column

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

column, random = Column("offset", {Path(path): 2_500_000 for path in sys.argv[1:]}), np.random.default_rng(0)
column.gather(random.integers(0, 10_000_000, 256))
before = anonymous()
for _ in range(400):
    column.gather(random.integers(0, 10_000_000, 256))
print(anonymous() - before)
"""


def test_gathering_from_ten_million_rows_keeps_the_resident_memory_flat(tmp_path):
    paths = [tmp_path / f"{number}.h5" for number in range(4)]
    for path in paths:
        write_columns(path, {"offset": np.zeros(2_500_000, np.uint64)})
    done = python(MEMORY, *paths)
    assert done.returncode == 0, done.stderr
    # 80 MB are mapped; each page that is touched belongs to the file, and none to the process.
    assert int(done.stdout) < 2048


def test_values_that_are_no_numbers_of_classes_are_one_line(tmp_path):
    def counts(name, values):
        write_columns(tmp_path / name, {"label": np.array(values)})
        return count_values(Column("label", {tmp_path / name: len(values)}), range(len(values)), 4).tolist()

    for number, values in enumerate(([0, 1, 4], [0, -1], [0.0, 1.0], np.zeros((2, 2), int))):
        with pytest.raises(UserError, match="column label: has values that are not whole numbers from 0 to 3"):
            counts(f"{number}.h5", values)
    assert counts("right.h5", [3, 0, 3]) == [1, 0, 0, 2]
