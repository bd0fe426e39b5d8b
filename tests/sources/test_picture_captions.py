"""Captions as other tools write them: files beside pictures, and tables called metadata."""

import os
from pathlib import Path

import pandas
import pytest

from hpcddm.config.schema import settings_to_hash, validate
from hpcddm.config.sources import SourceSettings
from hpcddm.data.image_decoding import ImageError
from hpcddm.errors import ConfigError, UserError
from tests.data.oddities import class_folder, encoded
from tests.data.refusals import assert_refused
from tests.sources.opening import records_of, source, split_of


@pytest.fixture
def folder(tmp_path):
    """Two splits with two classes of four pictures."""
    for split in ("train", "val"):
        class_folder(tmp_path / "data" / split)
    return tmp_path / "data"


@pytest.fixture
def alone(tmp_path):
    """Six pictures without classes."""
    return class_folder(tmp_path, ("alone",), 6) / "alone"


def opened(folder, split="train", **keys):
    return split_of("image_folder", split, folder=str(folder), **keys)


def shared(folder, **keys):
    """Both splits of a folder whose share is held out, as one list of records by key."""
    both = [opened(folder, split, heldout={"share": 0.5}, **keys) for split in ("train", "heldout")]
    assert all(records.has_captions for records in both)
    return {records.key(number): records[number] for records in both for number in range(len(records))}


def pictures(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.png"))


def write_beside(root, extension=".txt", text="a picture, {}"):
    for name in pictures(root):
        (root / name).with_suffix(extension).write_text(text.format(name))


def write_metadata(path, names, place="", **columns):
    """Write a table as pandas does, or as lines of JSON."""
    table = pandas.DataFrame({"file_name": [f"{place}{name}" for name in names], **columns})
    if path.stem == "captions":
        table = table.rename(columns={"file_name": "file", "text": "caption"})
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_json(path, orient="records", lines=True)


TABLES = ["metadata.csv", "metadata.jsonl", "metadata.parquet"]
EVERY_TABLE = pytest.mark.parametrize("name", TABLES)


@pytest.mark.parametrize("extension", [".txt", ".caption"])
def test_a_file_beside_each_picture_is_its_caption(folder, extension):
    write_beside(folder / "train", extension)
    write_beside(folder / "val", extension)
    for split, place in (("train", "train"), ("heldout", "val")):
        records = opened(folder, split)
        assert records.has_captions and records.passed_over == [] and records.class_names == ["cat", "dog"]
        assert [record.caption for record in records] == [f"a picture, {name}" for name in pictures(folder / place)]


def test_captions_beside_pictures_without_classes_are_read_with_the_record_only(alone, monkeypatch):
    write_beside(alone)
    records = shared(alone)
    assert {key: record.caption for key, record in records.items()} == {
        f"00{number}_png": f"a picture, 00{number}.png" for number in range(6)
    }
    monkeypatch.setattr("hpcddm.sources.picture_captions.read_beside", None)
    opened(alone, heldout={"share": 0.5})


CONTENTS = {
    b"1girl, solo, long hair": "1girl, solo, long hair",
    b"\n\n  a cat \r\n\r\n": "a cat",
    b"\xef\xbb\xbfa cat": "a cat",
    "\ufeffein K\xe4tzchen".encode("utf-16-le"): "ein K\xe4tzchen",
    b"7": "7",
    b" A cat.\n\nIt sleeps. \n": "A cat.\n\nIt sleeps.",
}


def test_a_caption_is_the_line_of_its_file(alone):
    write_beside(alone)
    for content, caption in CONTENTS.items():
        (alone / "003.txt").write_bytes(content)
        assert shared(alone)["003_png"].caption == caption


LONG = "no readable caption .has more than 1,048,576 bytes.; mend or replace it"
BROKEN = {
    "no such file, which would be the picture's caption; write it": Path.unlink,
    "empty, where a picture needs a caption; write one": lambda path: path.write_bytes(b" \n\n"),
    "no readable caption .*unexpected end of data.*; save it as UTF-8": lambda path: path.write_bytes(b"caf\xe9"),
    LONG: lambda path: path.write_bytes(b"x" * (1 << 20) + b"y"),
    "no readable caption .is a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_picture_without_one_caption_is_broken_and_the_others_are_not(alone, reason):
    write_beside(alone)
    BROKEN[reason](alone / "003.txt")
    records = opened(alone, heldout={"folder": str(alone)})
    assert records.has_captions and len(records) == 6
    with pytest.raises(ImageError, match=f"003.txt: {reason}"):
        records[3]
    assert [records[number].caption for number in (0, 1, 2, 4, 5)] == [f"a picture, 00{n}.png" for n in (0, 1, 2, 4, 5)]


def test_one_of_several_captions_is_chosen_by_its_number(alone):
    write_beside(alone, text="a picture\n\nthe picture {}\n")
    assert shared(alone, caption_item=0)["003_png"].caption == "a picture"
    assert shared(alone, caption_item=1)["003_png"].caption == "the picture 003.png"
    records = opened(alone, heldout={"folder": str(alone)}, caption_item=2)
    with pytest.raises(ImageError, match="0.txt: 2 captions, and data.source.caption_item is 2, counted from 0"):
        records[0]


def test_captions_may_be_links(alone, tmp_path):
    write_beside(alone)
    (tmp_path / "blob").write_text("elsewhere")
    (alone / "003.txt").unlink()
    (alone / "003.txt").symlink_to(tmp_path / "blob")
    assert shared(alone)["003_png"].caption == "elsewhere"
    (tmp_path / "blob").unlink()
    with pytest.raises(ImageError, match="003.txt: no such file"):
        opened(alone, heldout={"folder": str(alone)})[3]


def test_captions_without_a_picture_are_counted(folder):
    write_beside(folder / "train")
    (folder / "train" / "cat" / "gone.txt").write_text("a cat")
    (folder / "train" / "README.txt").write_text("all")
    (folder / "train" / "stray.png").write_bytes(encoded(1))
    (folder / "train" / "stray.txt").write_text("a stray cat")
    assert sorted(opened(folder).passed_over) == [
        ("README.txt", "files .txt", False),
        ("cat/gone.txt", "files .txt", False),
        ("stray.png", "pictures beside the folders of classes", True),
        ("stray.txt", "files .txt", False),
    ]


@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_a_few_notes_beside_pictures_make_no_captions_unless_a_key_says_so(folder, count):
    names = pictures(folder / "train")
    for name in names[:count]:
        (folder / "train" / name).with_suffix(".txt").write_text("a note")
    records = opened(folder)
    notes = [(name.replace(".png", ".txt"), "files .txt", False) for name in names[:count]]
    assert records.has_captions == (count >= 4) and records.passed_over == (notes if count < 4 else [])
    assert records[0].caption == ("a note" if count >= 4 else None)
    chosen = opened(folder, caption_from=".txt" if count == 1 else "txt")
    assert chosen.has_captions and chosen[0].caption == "a note" and chosen.passed_over == []


def test_a_caption_for_all_leaves_files_beside_pictures_alone(folder):
    write_beside(folder / "train")
    write_metadata(folder / "train" / "metadata.csv", pictures(folder / "train"), text="x")
    records = opened(folder, caption="a {class}")
    assert {record.caption for record in records} == {"a cat", "a dog"}
    assert len(records.passed_over) == 9 and records.passed_over[-1] == ("metadata.csv", "tables that are not read", 0)
    with pytest.raises(ConfigError, match="caption and caption_from both say what the captions are; remove one"):
        validate(SourceSettings, {"name": "image_folder", "folder": "x", "caption": "x", "caption_from": "txt"}, "x")


@EVERY_TABLE
def test_a_metadata_table_has_the_captions(folder, name):
    for place in ("train", "val"):
        names = pictures(folder / place)
        write_metadata(folder / place / name, names, text=[f"it shows {name}" for name in names])
    for split, place in (("train", "train"), ("heldout", "val")):
        records = opened(folder, split)
        assert [record.caption for record in records] == [f"it shows {name}" for name in pictures(folder / place)]
        assert records.has_captions and records.passed_over == [] and records.labels.tolist() == [0] * 4 + [1] * 4


@EVERY_TABLE
def test_a_table_of_both_splits_is_beside_their_folders(folder, name):
    names = [f"{place}/{name}" for place in ("train", "val") for name in pictures(folder / place)]
    rows = [*names, "train/gone.png", "val/gone.png", "test/gone.png"]
    write_metadata(folder / name, rows, text=[f"it shows {name}" for name in rows])
    captions = [record.caption for split in ("train", "heldout") for record in records_of_split(folder, split)]
    assert captions == [f"it shows {name}" for name in names]
    reason = f"rows of {name} without an image"
    assert opened(folder).passed_over == [("train/gone.png", reason, False), ("test/gone.png", reason, False)]
    assert opened(folder, "heldout").passed_over == [("val/gone.png", reason, False)]


def records_of_split(folder, split):
    return records_of("image_folder", split, folder=str(folder))


@EVERY_TABLE
def test_another_column_is_named_by_a_key_and_the_others_are_said_to_be_passed_over(folder, name):
    names = pictures(folder / "train")
    columns = {"prompt": [f"draw {name}" for name in names], "label": 3, "text": "x"}
    write_metadata(folder / "train" / name, names, **columns)
    records = opened(folder, caption_from="table:prompt")
    assert [record.caption for record in records] == [f"draw {name}" for name in names]
    reason = f"columns of {name} that are not read"
    assert records.passed_over == [("label", reason, False), ("text", reason, False)]
    message = f"caption_from: table:caption: no table with this column; .*{name} has file_name, label, prompt, text$"
    assert_refused(message, opened, folder, caption_from="table:caption")


def test_a_named_column_of_a_table_of_captions(folder):
    names = pictures(folder / "train")
    write_metadata(folder / "train" / "captions.jsonl", names, text="x", long=[f"long {name}" for name in names])
    assert opened(folder)[0].caption == "x"
    assert opened(folder, caption_from="table:long")[7].caption == "long dog/003.png"


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.parquet", "captions.jsonl"])
def test_a_column_of_lists_needs_the_number_of_the_item(folder, name):
    names = pictures(folder / "train")
    write_metadata(folder / "train" / name, names, text=[[f"one {own}", f"two {own}"] for own in names])
    message = ": (text|caption) of cat/000.png: a list of 2; choose one of its items with data.source.caption_item"
    assert_refused(name + message, opened, folder)
    assert opened(folder, caption_item=0)[0].caption == "one cat/000.png"
    assert opened(folder, caption_item=1)[7].caption == "two dog/003.png"
    with pytest.raises(UserError, match="no caption of cat/000.png; every image needs one, and 8 of 8 lack one"):
        opened(folder, caption_item=2)


@pytest.mark.parametrize("second", ["metadata.jsonl", "captions.csv", "../metadata.csv"])
def test_two_tables_are_named(folder, second):
    names = pictures(folder / "train")
    write_metadata(folder / "train" / "metadata.csv", names, text="x")
    write_metadata(folder / "train" / second, names, "train/" if ".." in second else "", text="x")
    name = second.rpartition("/")[2]
    with pytest.raises(UserError, match="two tables of captions; remove one of them") as raised:
        opened(folder)
    assert str(raised.value).count("metadata.csv") >= 1 and name in str(raised.value) and "\n" not in str(raised.value)


def test_where_two_things_may_be_the_captions_both_are_named_with_the_key(folder):
    root = folder / "train"
    write_beside(root)
    write_metadata(root / "metadata.csv", pictures(root), text="of the table")
    advice = "choose one with data.source.caption_from: table:text or txt"
    assert_refused(f"metadata.csv and files such as .*cat/000.txt may both have .*; {advice}", opened, folder)
    assert opened(folder, caption_from="table:text")[0].caption == "of the table"
    assert len(opened(folder, caption_from="table:text").passed_over) == 8
    records = opened(folder, caption_from="txt")
    assert records[0].caption == "a picture, cat/000.png"
    assert records.passed_over == [("metadata.csv", "tables that are not read", False)]
    (root / "metadata.csv").unlink()
    write_beside(root, ".caption", "another")
    assert_refused("000.txt and .*000.caption may both be captions; choose .*: txt or caption", opened, folder)
    assert opened(folder, caption_from="caption")[0].caption == "another"
    with pytest.raises(UserError, match="caption_from: tags: no image in .*train has such a file beside it"):
        opened(folder, caption_from="tags")


def test_two_columns_that_may_be_the_captions_are_named_with_the_key(folder):
    write_metadata(folder / "train" / "metadata.csv", pictures(folder / "train"), text="short", caption="long")
    advice = "data.source.caption_from: table:text or table:caption"
    assert_refused(f"the columns text and caption may both have the captions; choose .*{advice}", opened, folder)
    assert opened(folder, caption_from="table:caption")[0].caption == "long"


@pytest.mark.parametrize("columns", [{"label": 1}, {"file": "x", "text": "y"}])
def test_a_metadata_table_without_captions_is_counted(folder, columns):
    table = pandas.DataFrame({"file_name" if "label" in columns else "name": pictures(folder / "train"), **columns})
    table.to_csv(folder / "train" / "metadata.csv", index=False)
    table.to_csv(folder / "metadata.csv", index=False)
    records = opened(folder)
    assert not records.has_captions and records.passed_over == [("metadata.csv", "tables that are not read", False)] * 2
    assert opened(folder, "heldout").passed_over == []


def test_tables_in_the_folders_of_classes_are_counted_by_name(folder):
    write_metadata(folder / "train" / "cat" / "metadata.csv", ["000.png"], text="x")
    reason = "tables in the folder of one class, which are not read"
    assert opened(folder).passed_over == [("cat/metadata.csv", reason, False)]


def test_changed_captions_are_other_content_and_equal_ones_are_not(alone):
    keys, file = {"folder": str(alone), "heldout": {"share": 0.5}}, alone / "003.txt"
    contents = [source("image_folder", **keys).content_hash()]
    for change in (lambda: write_beside(alone), lambda: file.write_text("another"), file.unlink):
        change()
        contents.append(source("image_folder", **keys).content_hash())
    assert len(set(contents)) == 4 and source("image_folder", **keys).content_hash() == contents[-1]
    chosen = {"heldout": {"share": 0.5}, "caption_from": "txt", "caption_item": 0}
    assert settings_to_hash(source("image_folder", **keys | chosen).settings) == {"name": "image_folder", **chosen}


@pytest.mark.parametrize("key, value", [("caption_from", ""), ("caption_from", ".txt x"), ("caption_item", -1)])
def test_keys_that_say_nothing_are_refused(key, value):
    with pytest.raises(ConfigError, match=key):
        validate(SourceSettings, {"name": "image_folder", "folder": "x", key: value}, "x.yaml")
