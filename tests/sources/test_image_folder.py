import hashlib
import shutil

import polars
import pytest
from PIL import Image

from hpcddm.config.schema import settings_to_hash, validate
from hpcddm.config.sources import SourceSettings
from hpcddm.errors import ConfigError, UserError
from hpcddm.runs.passed_over import PassedOverItem
from hpcddm.sources.heldout_share import is_heldout
from tests import pictures
from tests.data.refusals import assert_refused
from tests.sources.opening import records_of, source, split_of


@pytest.mark.parametrize("name", ["image_folder", "imagenet", "webdataset", "huggingface", "idx"])
def test_a_missing_folder_is_named_by_its_key_and_variables_are_said_not_to_be_expanded(tmp_path, name):
    needed = {"heldout": {"share": 0.2}} if name == "webdataset" else {}
    with pytest.raises(UserError, match=f"data.source.folder: {tmp_path}/nowhere is not a folder$"):
        split_of(name, folder=str(tmp_path / "nowhere"), **needed)
    with pytest.raises(UserError, match=r"/\$SCRATCH is not a folder; variables are not expanded here"):
        split_of(name, folder=str(tmp_path / "$SCRATCH"), **needed)


def opened(folder, split="train", **keys):
    return split_of("image_folder", split, folder=str(folder), **keys)


@pytest.fixture
def folder(tmp_path):
    """Three classes of pictures, in several formats, beside files that are none."""
    for split, counts in (("train", (3, 2, 4)), ("heldout", (1, 0, 2))):
        for name, count in zip(("ant", "bee", "cat"), counts, strict=True):
            for number in range(count):
                place = tmp_path / split / name / f"pic.{number}{('.png', '.JPG', '.bmp', '.png')[number]}"
                place.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (9, 7), (40 * number, 0, 0)).save(place)
    (tmp_path / "train" / "ant" / "notes.txt").write_text("no picture")
    (tmp_path / "train" / "ant" / "._pic.0.png").write_text("what macOS knows of a picture")
    (tmp_path / "train" / ".cache").mkdir()
    (tmp_path / "train" / "README").write_text("no class")
    return tmp_path


def test_a_folder_of_images_has_its_classes_in_alphabetical_order(folder):
    records = opened(folder)
    assert records.labels.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert [records[number].label for number in range(len(records))] == records.labels.tolist()
    assert records[3].image.size == (9, 7) and "bee" in records[3].key
    assert all("." not in records[number].key and "/" not in records[number].key for number in range(9))


def test_a_class_without_heldout_images_shifts_no_other_class(folder):
    assert opened(folder, "heldout").labels.tolist() == [0, 2, 2]


def test_val_is_as_good_a_name_for_the_heldout_images(folder):
    before = [record.key for record in opened(folder, "heldout")]
    (folder / "heldout").rename(folder / "val")
    records = opened(folder, "heldout")
    assert [record.key for record in records] == before and records.class_names == ["ant", "bee", "cat"]
    (folder / "heldout").mkdir()
    assert_refused("/heldout and .*/val both hold heldout images; rename or remove one", opened, folder, "heldout")
    (folder / "heldout").rmdir()
    (folder / "val").rename(folder / "validation")
    assert_refused("/heldout is not a folder; needs .*/train and .*/heldout or val", opened, folder, "heldout")


def test_a_heldout_class_that_is_not_trained_is_named(folder):
    shutil.copytree(folder / "heldout" / "cat", folder / "heldout" / "dog")
    (folder / "train" / "dog").mkdir()
    assert_refused(r"heldout/dog: no such class with images in .*/train \(ant, bee, cat\)", opened, folder, "heldout")


def test_a_damaged_picture_is_named_with_what_to_do(folder):
    path = folder / "train" / "bee" / "pic.0.png"
    whole = path.read_bytes()
    for content in (whole[:40], b"", whole[:50] + b"\0\0\0\1" + whole[54:]):
        path.write_bytes(content)
        records = opened(folder)
        records[2]
        with pytest.raises(UserError, match="bee/pic.0.png: no readable image .*; remove or replace it"):
            records[3]


def test_a_folder_without_pictures_is_named(tmp_path):
    (tmp_path / "train" / "ant").mkdir(parents=True)
    assert_refused("train holds neither images .* passed over: folders without a .*: 1 .ant/.", opened, tmp_path)


def with_captions(folder, split="train", rows=None, name="captions.jsonl"):
    """Write a table of captions of all pictures of a split, or of some."""
    root = folder / split
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("pic.*"))
    rows = [(file, f"a picture, {file}") for file in files] if rows is None else rows
    frame = polars.DataFrame(rows, ["file", "caption"], orient="row")
    writers = {".parquet": frame.write_parquet, ".csv": frame.write_csv, ".jsonl": frame.write_ndjson}
    writers[(root / name).suffix](root / name)
    return root / name


def test_a_caption_with_a_placeholder_that_stands_for_nothing_is_refused(folder):
    assert opened(folder, caption="a {class}")[0].caption == "a ant"
    assert_refused(r"data.source.caption: \{clas\} is unknown; valid: \{class\}", opened, folder, caption="a {clas}")


@pytest.mark.parametrize("name", ["captions.jsonl", "captions.csv", "captions.parquet"])
def test_a_table_gives_every_picture_its_caption(folder, name):
    assert not opened(folder).has_captions
    with_captions(folder, name=name)
    records = opened(folder)
    assert records.has_captions and records[3].caption == "a picture, bee/pic.0.png" and records[3].label == 1


def test_rows_of_captions_without_an_image_are_counted(folder):
    root = folder / "train"
    # A caption of digits is a text.
    rows = [(path.relative_to(root).as_posix(), "7") for path in root.rglob("pic.*")]
    before = opened(folder).passed_over
    with_captions(folder, rows=[*rows, ("ant/gone.png", "8")], name="captions.csv")
    records = opened(folder)
    assert {records[number].caption for number in range(len(records))} == {"7"}
    unused = PassedOverItem("ant/gone.png", "rows of captions.csv without an image")
    assert [item for item in records.passed_over if item not in before] == [unused]
    with_captions(folder, rows=[(f"train/{file}", text) for file, text in rows], name="captions.csv")
    assert_refused("no caption of ant/.* one, and 9 of 9 lack one; the first file .* is train/", opened, folder)


def test_a_changed_caption_is_other_content(folder):
    contents = [source("image_folder", folder=str(folder)).content_hash()]
    for caption in ("an ant", "a bee"):
        with_captions(folder, "heldout", [("ant/pic.0.png", caption), *(("cat/pic.0.png", ""), ("cat/pic.1.JPG", ""))])
        contents.append(source("image_folder", folder=str(folder)).content_hash())
    assert len(set(contents)) == 3


WRONG_TABLES = {
    "jsonl: no readable table .no column caption; there are: file.": '{"file": "ant/pic.0.png"}\n',
    "jsonl: no caption of ant/pic.0.png; every": '{"file": "ant/pic.0.png", "caption": null}\n',
    "jsonl: caption of ant/pic.0.png: 7 is not a": '{"file": "ant/pic.0.png", "caption": 7}\n',
    "csv: no readable table .line 2: 1 cells, where 2 columns": "file,caption\nant/pic.0.png\n",
    "csv: line 3: ant/pic.0.png is in line 2, too; remove one": "file,caption\nant/pic.0.png,x\nant/pic.0.png,y\n",
}


@pytest.mark.parametrize("message", WRONG_TABLES)
def test_a_table_that_lacks_something_is_named(folder, message):
    (folder / "train" / f"captions.{message.partition(':')[0]}").write_text(WRONG_TABLES[message])
    assert_refused(f"captions.{message}", split_of, "image_folder", folder=str(folder))


def test_pictures_without_folders_of_classes_have_no_class(tmp_path):
    records = opened(pictures.write_folder(tmp_path))
    assert records.labels is None and records.class_names == [] and len(records) == 256
    assert records[0].label is None and records[0].caption == pictures.captions()[1] == "gorilla"
    assert records[0].key == "train-001_png" and records[0].image.size == (24, 24)
    assert len(opened(tmp_path, "heldout")) == 64


def test_keys_and_content_of_two_folders_stay_as_they_always_were(folder):
    keys = [record.key for record in records_of("image_folder", "heldout", folder=str(folder))]
    assert keys == ["heldout-ant-pic_0_png", "heldout-cat-pic_0_png", "heldout-cat-pic_1_JPG"]
    files = [path for split in ("train", "heldout") for path in sorted(folder.glob(f"{split}/*/pic*"))]
    stated = repr([(path.relative_to(folder).as_posix(), path.stat().st_size) for path in files])
    assert source("image_folder", folder=str(folder)).content_hash() == hashlib.sha256(stated.encode()).hexdigest()
    assert settings_to_hash(source("image_folder", folder=str(folder)).settings) == {"name": "image_folder"}
    shared = source("image_folder", folder=str(folder), heldout={"share": 0.1}).settings
    assert settings_to_hash(shared) == {"name": "image_folder", "heldout": {"share": 0.1}}


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_share_of_one_folder_is_held_out_by_key_with_classes_and_captions(folder, share):
    with_captions(folder)
    keys = {"folder": str(folder / "train"), "heldout": {"share": share}}
    held, trained = (records_of("image_folder", split, **keys) for split in ("heldout", "train"))
    assert all(is_heldout(record.key, share) for record in held)
    assert not any(is_heldout(record.key, share) for record in trained)
    whole = records_of("image_folder", folder=str(folder))
    expected = {(record.key.removeprefix("train-"), record.label, record.caption) for record in whole}
    assert {(record.key, record.label, record.caption) for record in held + trained} == expected and len(expected) == 9


def test_another_share_is_other_content_with_the_same_keys(folder):
    keys = {"folder": str(folder / "train")}
    contents = [source("image_folder", **keys, heldout={"share": share}).content_hash() for share in (0.5, 0.501, 0.8)]
    assert contents[0] == contents[1] != contents[2]


def test_a_share_that_leaves_a_split_without_images_is_refused(folder):
    with pytest.raises(UserError, match="data.source.heldout.share: 1e-09: leaves no heldout images in .*/train"):
        opened(folder / "train", "heldout", heldout={"share": 1e-9})


def test_the_held_out_images_may_lie_elsewhere(folder):
    before = records_of("image_folder", "heldout", folder=str(folder))
    (folder / "heldout").rename(folder / "elsewhere")
    keys = {"folder": str(folder / "train"), "heldout": {"folder": str(folder / "elsewhere")}}
    records = records_of("image_folder", "heldout", **keys)
    assert [(own.key, own.label) for own in records] == [(own.key, own.label) for own in before]
    assert len(split_of("image_folder", **keys)) == 9
    with pytest.raises(UserError, match="data.source.heldout.folder: .*/nowhere is not a folder"):
        split_of("image_folder", "heldout", **keys | {"heldout": {"folder": str(folder / "nowhere")}})


def test_held_out_images_that_are_not_described_are_refused():
    for heldout, message in (
        ({}, "heldout: .*needs one of folder, share"),
        ({"folder": "x", "share": 0.1}, "heldout: .*needs one of folder, share"),
        ({"share": 0}, "heldout.share: input should be greater than 0, found 0"),
        ({"share": 1}, "heldout.share: input should be less than 1, found 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            validate(SourceSettings, {"name": "image_folder", "folder": "x", "heldout": heldout}, "x.yaml")


def test_two_files_with_one_key_are_named(folder):
    (folder / "train" / "cat" / "pic_1.JPG").write_bytes(b"")
    assert_refused("cat/pic.1.JPG and cat/pic_1.JPG have the same key, cat-pic_1_JPG; rename one", opened, folder)


def test_the_images_of_a_class_may_be_in_a_folder_of_that_name_alone(folder):
    before = opened(folder)
    for name in ("ant", "cat"):
        inner = folder / "train" / name / "images"
        inner.mkdir()
        for picture in folder.glob(f"train/{name}/pic*"):
            picture.rename(inner / picture.name)
    records = opened(folder)
    assert records.class_names == before.class_names and records.labels.tolist() == before.labels.tolist()
    assert records[0].file.endswith("ant/images/pic.0.png")
    assert len(opened(folder, "heldout")) == 3
    # Of a class with images beside that folder, it is no more than another folder.
    (folder / "train/cat/images/pic.0.png").rename(folder / "train/cat/pic.0.png")
    assert_refused("train/cat/images: a folder in that of a class", split_of, "image_folder", folder=str(folder))


def test_a_folder_inside_a_class_is_refused(folder):
    (folder / "train" / "cat" / ".thumbs").mkdir()
    opened(folder)
    (folder / "train" / "cat" / "kittens").mkdir()
    assert_refused("train/cat/kittens: a folder in that of a class; move its images up", opened, folder)
