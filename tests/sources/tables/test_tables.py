import json
import re
import shutil
import sys

import numpy as np
import polars
import pytest

from hpcddm.config.filter.predicate import Predicate
from hpcddm.errors import UserError
from hpcddm.sources.tables.parquet_rows import BLOCK
from hpcddm.sources.tables.tables import FORMATS, Table, content_hash
from tests import pictures
from tests.data.refusals import assert_refused

ENDS = list(FORMATS)
COUNT = 320


def img2dataset():
    """Columns of an img2dataset shard's parquet: an image that was not downloaded has no size."""
    draw, captions = np.random.default_rng(0), pictures.captions()
    there = (draw.random(COUNT) < 0.8).tolist()
    sizes = draw.integers(64, 2048, COUNT).tolist()
    return {
        "caption": [captions[number % len(captions)] for number in range(COUNT)],
        "key": [f"{number:09d}" for number in range(COUNT)],
        "status": ["success" if known else "failed_to_download" for known in there],
        "error_message": [None if known else 'HTTP Error 404, "gone"' for known in there],
        "width": [size if known else None for size, known in zip(sizes, there, strict=True)],
        "aesthetic": [round(score, 3) for score in draw.normal(5, 1, COUNT).tolist()],
    }


def written(columns, path):
    """Write a table in the format of its name."""
    frame = polars.DataFrame(columns, strict=False)
    writers = {".csv": frame.write_csv, ".jsonl": frame.write_ndjson}
    writers.get(path.suffix, lambda path: frame.write_parquet(path, row_group_size=100))(path)
    return path


def columns_of(table, names, keys):
    """The values of some columns in the order of the keys; None for a row or a value that is missing."""
    rows = table.rows(names, keys).values
    nothing = (None,) * len(names)
    return {name: [rows.get(key, nothing)[place] for key in keys] for place, name in enumerate(names)}


@pytest.mark.parametrize("end", ENDS)
def test_rows_come_in_the_order_of_the_keys_and_a_filter_reads_them(tmp_path, end):
    columns = img2dataset()
    table = Table(written(columns, tmp_path / f"00000{end}"))
    places = np.random.default_rng(1).permutation(COUNT)[:100].tolist()
    keys = [columns["key"][place] for place in places]
    names = ["width", "caption", "error_message", "aesthetic"]
    found = columns_of(table, names, [*keys[:50], "no such key", *keys[50:], keys[0]])
    for name in names:
        values = [columns[name][place] for place in places]
        assert found[name] == [*values[:50], None, *values[50:], values[0]]
    assert table.texts("caption", keys) == [columns["caption"][place] for place in places]

    kept = Predicate("aesthetic >= 5 and width >= 256 and status == 'success'")
    mask = kept.mask(columns_of(table, kept.column_names, columns["key"]))
    assert 0 < mask.sum() < COUNT and np.array_equal(mask, kept.mask(columns))


@pytest.mark.parametrize("end", ENDS)
def test_a_large_table_is_read_in_pieces(tmp_path, end):
    count = BLOCK + 10
    keys = [f"{number:07d}" for number in range(count)]
    table = Table(written({"key": keys, "number": list(range(count))}, tmp_path / f"t{end}"))
    assert columns_of(table, ["number"], [keys[BLOCK], keys[3], keys[-1]]) == {"number": [BLOCK, 3, count - 1]}


@pytest.mark.parametrize("end", ENDS)
def test_any_column_may_hold_the_keys(tmp_path, end):
    table = Table(written({"url": ["a", "b"], "key": ["1", "2"]}, tmp_path / f"t{end}"), key="url")
    assert table.texts("url", ["b", "c"]) == ["b", None]
    assert columns_of(table, [], ["b"]) == {}


def test_the_tables_beside_the_tars_of_img2dataset_are_one():
    whole = polars.concat([polars.read_parquet(path) for path in sorted(pictures.IMG2DATASET.glob("*.parquet"))])
    draw = np.random.default_rng(0)
    rows = whole[draw.permutation(len(whole)).tolist()]
    table, expected = Table(pictures.IMG2DATASET), rows.select("aesthetic", "url").to_dict(as_series=False)
    assert columns_of(table, ["aesthetic", "url"], rows["key"].to_list()) == expected
    assert table.texts("caption", [rows["key"][3], "no such key"]) == [rows["caption"][3], None]


@pytest.mark.parametrize("end", ENDS)
def test_a_folder_of_tables_is_read_as_one_in_pieces(tmp_path, end):
    columns = img2dataset()
    names = ["aesthetic", "width", "error_message"]
    (tmp_path / "parts").mkdir()
    for part in range(4):
        rows = {name: values[80 * part : 80 * part + 80] for name, values in columns.items()}
        written(rows, tmp_path / "parts" / f"{part}{end}")
    (tmp_path / "parts" / f"._0{end}").write_bytes(b"what macOS adds")
    whole = Table(written(columns, tmp_path / f"whole{end}"))
    assert columns_of(Table(tmp_path / "parts"), names, columns["key"]) == columns_of(whole, names, columns["key"])


def test_names_may_end_in_capitals(tmp_path):
    (tmp_path / "a.csv").write_text("key,a\nx,1\n")
    (tmp_path / "b.CSV").write_text('key,a\ny,"2"')
    assert Table(tmp_path).rows(["a"], ["x", "y"]).values == {"x": (1,), "y": (2,)}
    assert Table(tmp_path / "b.CSV").rows(["a"], ["y"]) == ({"y": (2,)}, 1)


def test_a_column_is_of_numbers_where_it_is_in_all_files_of_a_folder(tmp_path):
    (tmp_path / "a.csv").write_text("key,a,b\nx,1,1\n")
    (tmp_path / "b.csv").write_text("b,key,a\nsome,y,2\n")
    assert columns_of(Table(tmp_path), ["a", "b"], ["x", "y"]) == {"a": [1, 2], "b": ["1", "some"]}


WRONG_PARTS = {
    "no table": ({"00000.tar": b""}, r"^{folder}: no table in this folder, no name that ends in one of .csv, .jsonl"),
    "two formats": ({"a.csv": b"key,a", "b.jsonl": b"{}"}, "^{folder}: a.csv and b.jsonl have not one format"),
    "no column": ({"a.csv": b"key,a\n", "b.csv": b"key\ny\n"}, "^{folder}/b.csv: no readable table .no column a"),
    "twice": ({"a.csv": b"key,a\nx,1\n", "b.csv": b"key,a\n\nx,2\n"}, "b.csv: line 3: x is in line 2 of a.csv, too"),
    "key": ({"a.csv": b"key,a\n", "b.l.csv": b"key,a\nx,1,2\n"}, "^{folder}/b.l.csv: no readable table .line 2"),
}


@pytest.mark.parametrize("files, message", WRONG_PARTS.values(), ids=WRONG_PARTS)
def test_what_is_wrong_in_a_folder_of_tables_is_named_with_its_file(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    assert_refused(message.format(folder=tmp_path), lambda: columns_of(Table(tmp_path), ["a"], ["x"]))


def test_a_folder_of_tables_goes_by_their_names_and_contents(tmp_path):
    folder = shutil.copytree(pictures.IMG2DATASET, tmp_path / "collection")
    before = content_hash(folder)
    (folder / "00000_stats.json").write_text("{}")
    (folder / "00001.tar").unlink()
    assert content_hash(folder) == before == content_hash(pictures.IMG2DATASET)
    hashes = {before}
    for change in (
        lambda: (folder / "00003.parquet").rename(folder / "00004.parquet"),
        lambda: shutil.copy(folder / "00001.parquet", folder / "00002.parquet"),
        (folder / "00002.parquet").unlink,
    ):
        change()
        hashes.add(content_hash(folder))
    assert len(hashes) == 4


def test_cells_of_a_csv_file_are_numbers_where_all_of_the_column_are(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("key,whole,some,mixed,digits\na,1,0.5,1,7\nb,,,x,1_0\nc,-3,1e3,,\n")
    keys = ["a", "b", "c"]
    expected = {"whole": [1, None, -3], "some": [0.5, None, 1000.0], "mixed": ["1", "x", None]}
    expected["digits"] = ["7", "1_0", None]
    assert columns_of(Table(path), list(expected), keys) == expected
    # Other rows have their say, whichever are asked for: all units of a stage see the same kinds.
    assert columns_of(Table(path), ["mixed"], ["a"]) == {"mixed": ["1"]}
    assert Table(path).texts("whole", keys) == ["1", "", "-3"]


def test_a_mark_empty_lines_and_lines_in_cells_are_read(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbfkey,caption\r\na,"two\r\nlines, ""quoted"""\r\n\r\nb,x\r\n')
    assert Table(tmp_path / "t.csv").texts("caption", ["b", "a"]) == ["x", 'two\r\nlines, "quoted"']
    # Files that were joined to one have marks between them.
    (tmp_path / "t.jsonl").write_text('\ufeff{"key": "a", "caption": "x"}\n\n\ufeff{"key": "b"}\n')
    assert Table(tmp_path / "t.jsonl").texts("caption", ["b", "a"]) == [None, "x"]


def test_keys_of_a_csv_file_need_not_be_utf_8_and_what_is_not_asked_for_may_be_anything(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"key,a,b\nx\xe9,1,\xff\n\xc3\xa9,2,\xff\n")
    keys = ["\u00e9", "x\udce9"]
    assert columns_of(Table(path), ["a"], keys) == {"a": [2, 1]} and Table(path).texts("a", keys) == ["2", "1"]
    assert list(Table(path).numbers("a", 3)) == [("x\udce9", 1), ("\u00e9", 2)]
    table = Table(path)
    for read in (lambda: table.rows(["b"], []), lambda: table.texts("b", []), lambda: list(table.numbers("b", 3))):
        assert_refused("t.csv: no readable table .line 2: .*can't decode byte 0xff", read)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", [".csv", ".jsonl"])
def test_tables_of_any_editor_are_one(tmp_path, encoding, end):
    path = written({"key": ["a", "b"], "caption": ["a cat", "\u00e9t\u00e9"], "score": [1, None]}, tmp_path / f"t{end}")
    path.write_text(path.read_text().replace("\n", "\r\n"), encoding=encoding, newline="")
    rows = Table(path).rows(["caption", "score"], ["a", "b"])
    assert rows.values == {"a": ("a cat", 1), "b": ("\u00e9t\u00e9", None)}
    path.write_bytes(path.read_text(encoding=encoding).encode("utf-16-le"))
    assert_refused("no readable table .zero bytes, as in UTF-16 without its mark", Table(path).rows, ["caption"], ["a"])


@pytest.mark.parametrize("cell", ["NA", "N/A", "null", "None", "-", "#N/A", "5,3", "1_000"])
def test_a_text_among_numbers_is_named_with_its_line(tmp_path, cell):
    path = tmp_path / "t.csv"
    path.write_text(f'key,score,title\na,,x\nb,6,y\nc,"{cell}",z\nd,7,\n')
    kinds = Table(path).empty_columns(["score", "title"])
    assert {name: column.kind for name, column in kinds.items()} == {"score": "text", "title": "text"}
    line = f"{path}: line 4: {cell!r} is not a number; a missing value is an"
    message = re.escape(f"score is a text, where a number is needed: {line}")
    for expression in ("score >= 5", "5 <= score", "score * 2 > 1", "abs(score) > 1", "score in (5, 6)", "-score < 0"):
        assert_refused(message, Predicate(expression).check_kinds, kinds)
    Predicate(f"score != {cell!r} and title == 'x'").check_kinds(kinds)
    rows = [json.dumps({"key": key, "score": value}) for key, value in (("a", None), ("b", 6), ("c", cell))]
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    message = rf"score: .*t.jsonl: line 3: {re.escape(repr(cell))} is not a number, and .*: line 2: 6 is"
    assert_refused(message, Table(tmp_path / "t.jsonl").empty_columns, ["score"])


NULLS = {
    ".csv": "key,score\na,6\nb,\nc,NaN\nd,nan\n",
    ".jsonl": '{"key": "a", "score": 6}\n{"key": "b"}\n{"key": "c", "score": NaN}\n{"key": "d", "score": null}\n',
}


@pytest.mark.parametrize("end", ENDS)
def test_a_missing_value_is_null_in_every_format(tmp_path, end):
    path = tmp_path / f"t{end}"
    if end in NULLS:
        path.write_text(NULLS[end])
    else:
        written({"key": list("abcd"), "score": [6.0, None, float("nan"), None]}, path)
    table, kept = Table(path), Predicate("score is null")
    kept.check_kinds(table.empty_columns(["score"]))
    assert table.empty_columns(["score"])["score"].kind == "number"
    assert kept.mask(columns_of(table, ["score"], list("abcde"))).tolist() == [False, True, True, True, True]


def test_the_type_of_a_parquet_column_is_its_kind(tmp_path):
    columns = {"key": ["a"], "text": ["6"], "number": [6.5], "flag": [True], "nothing": [None], "list": [[1, 2]]}
    table = Table(written(columns, tmp_path / "t.parquet"))
    kinds = table.empty_columns(["text", "number", "flag", "nothing"])
    assert [column.kind for column in kinds.values()] == ["text", "number", "condition", None]
    with pytest.raises(UserError, match="text is a text, where a number is needed: .*t.parquet: the type .*ring is no"):
        Predicate("text > 5").check_kinds(kinds)
    with pytest.raises(UserError, match="column list: .*t.parquet: the type .*list.* is neither a number nor a text"):
        table.empty_columns(["list"])


def test_files_of_one_table_have_columns_of_one_kind(tmp_path):
    written({"key": ["a"], "score": [1]}, tmp_path / "a.parquet")
    written({"key": ["b"], "score": ["NA"]}, tmp_path / "b.parquet")
    with pytest.raises(UserError, match="score: .*b.parquet: the type .*ring is not a .*a.parquet: the type int64 is"):
        Table(tmp_path).empty_columns(["score"])


WRONG = {
    "no column": ("t.csv", b"key,b\nx,1\n", "no readable table .no column a; there are: key, b."),
    "no key": ("t.csv", b"file,a\nx,1\n", "no readable table .no column key; there are: file, a."),
    "empty": ("t.csv", b"", "no readable table .no column key"),
    "short row": ("t.csv", b"key,a\nx,1\ny\n", "no readable table .line 3: 1 cells, where 2 columns are named"),
    "twice": ("t.csv", b"key,a\nx,1\n\nx,2\n", "line 4: x is in line 2, too; remove one"),
    "invalid UTF-8 in a name": ("t.csv", b"key,a,\xff\nx,1,2\n", "no readable table .line 1: .*can't decode byte 0xff"),
    "a very long cell": ("t.csv", b"key,a\nx," + b"y" * 200_000, "table .line 2: a cell that begins here is too long"),
    "no column in any row": ("t.jsonl", b'{"key": "x"}\n{"key": "y", "b": 1}\n', ".no column a; there are: key, b."),
    "no JSON": ("t.jsonl", b'{"key": "x", "a": 1}\n{"key"\n', "no readable table .line 2: "),
    "no object": ("t.jsonl", b'["key"]\n', "no readable table .line 1: .'key'. is not an object"),
    "deep": ("t.jsonl", b"[" * 100_000, "no readable table "),
    "key that is not a text": ("t.jsonl", b'{"key": 12, "a": 1}\n', "line 1: key 12 is not a text, as keys must be"),
    "row without a key": ("t.jsonl", b'{"a": 1}\n{"key": "x"}\n', "line 1: key None is not a text"),
    "twice in JSON": ("t.jsonl", b'{"key": "x", "a": 1}\n' * 2, "line 2: x is in line 1, too"),
    "no parquet": ("t.parquet", b"PAR1 or not", "damaged or truncated "),
    "another format": ("t.tsv", b"key\ta\n", "a table's name ends in one of .csv, .jsonl, .parquet"),
}


@pytest.mark.parametrize("name, content, message", WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_table_is_named_with_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert_refused(f"{name}: .*{message}|{name}: {message}", lambda: columns_of(Table(tmp_path / name), ["a"], ["x"]))


def test_a_missing_file_is_named(tmp_path):
    for name, told in (("t.parquet", "cannot be read"), ("t.csv", "no readable table")):
        with pytest.raises(UserError, match=f"{name}: {told} .*No such file.*(mend|fetch it again)"):
            columns_of(Table(tmp_path / name), ["a"], ["x"])


def test_a_parquet_table_that_lacks_something_is_named(tmp_path):
    for columns, message in (
        ({"key": ["x"]}, "no column a; there are: key"),
        ({"key": [1], "a": [1]}, "row 0: key 1 is not a text"),
        ({"key": ["x", "y", "x"], "a": [1, 2, 3]}, "row 2: x is in row 0, too"),
    ):
        assert_refused(message, columns_of, Table(written(columns, tmp_path / "t.parquet")), ["a"], ["x"])


def test_a_torn_parquet_table_is_named(tmp_path):
    path = written(img2dataset(), tmp_path / "00000.parquet")
    whole = path.read_bytes()
    for kept in (0, 4, 100, len(whole) - 100):
        path.write_bytes(whole[:kept])
        with pytest.raises(UserError, match="00000.parquet: damaged or truncated .*; fetch it again, or remove it"):
            columns_of(Table(path), ["width"], ["000000001"])


def test_values_that_are_no_texts_are_refused_where_texts_are_wanted(tmp_path):
    (tmp_path / "t.jsonl").write_text(json.dumps({"key": "x", "caption": ["a", "b"]}))
    with pytest.raises(UserError, match="t.jsonl: caption of x: .'a', 'b'. is not a text"):
        Table(tmp_path / "t.jsonl").texts("caption", ["x"])


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = written(img2dataset(), tmp_path / "00000.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"needs the package pyarrow; install it with: pip install pyarrow"):
        columns_of(Table(path), ["width"], ["000000001"])


@pytest.mark.parametrize("end", ENDS)
def test_numbers_of_a_column_come_in_the_order_of_the_file(tmp_path, end):
    table = Table(written({"key": ["b", "a", "c"], "part": [2, 0, 1]}, tmp_path / f"parts{end}"))
    assert list(table.numbers("part", 3)) == [("b", 2), ("a", 0), ("c", 1)]
    with pytest.raises(
        UserError, match=f"s{end}: (line|row) [0-3]: part of b: '?2'? is not a whole number from 0 to 1"
    ):
        list(table.numbers("part", 2))
