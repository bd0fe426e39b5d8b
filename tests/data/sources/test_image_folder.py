import hashlib
import json
import shutil

import polars
import pytest
from PIL import Image

from hpcddm.config.schema import settings_to_hash, validate
from hpcddm.config.sources import SourceSettings
from hpcddm.data.sources.heldout_share import is_heldout
from hpcddm.errors import ConfigError, UserError
from hpcddm.runs.passed_over import PassedOverItem
from tests import pictures
from tests.data.sources.opening import records_of, source, split_of


@pytest.mark.parametrize("name", ["image_folder", "imagenet", "webdataset", "huggingface", "idx"])
def test_a_missing_folder_is_named_by_its_key_and_variables_are_said_not_to_be_expanded(tmp_path, name):
    needed = {"heldout": {"share": 0.2}} if name == "webdataset" else {}
    with pytest.raises(UserError, match=f"data.source.folder: {tmp_path}/nowhere is not a folder$"):
        split_of(name, folder=str(tmp_path / "nowhere"), **needed)
    with pytest.raises(UserError, match=r"/\$SCRATCH is not a folder; variables are not expanded here"):
        split_of(name, folder=str(tmp_path / "$SCRATCH"), **needed)


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
    records = split_of("image_folder", folder=str(folder))
    assert records.labels.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert [records[number].label for number in range(len(records))] == records.labels.tolist()
    assert records[3].image.size == (9, 7) and "bee" in records[3].key
    assert all("." not in records[number].key and "/" not in records[number].key for number in range(9))


def test_a_class_without_heldout_images_shifts_no_other_class(folder):
    assert split_of("image_folder", "heldout", folder=str(folder)).labels.tolist() == [0, 2, 2]


def test_val_is_as_good_a_name_for_the_heldout_images(folder):
    before = [record.key for record in split_of("image_folder", "heldout", folder=str(folder))]
    (folder / "heldout").rename(folder / "val")
    records = split_of("image_folder", "heldout", folder=str(folder))
    assert [record.key for record in records] == before and records.class_names == ["ant", "bee", "cat"]
    (folder / "heldout").mkdir()
    with pytest.raises(UserError, match="/heldout and .*/val both hold heldout images; rename or remove one"):
        split_of("image_folder", "heldout", folder=str(folder))
    (folder / "heldout").rmdir()
    (folder / "val").rename(folder / "validation")
    with pytest.raises(UserError, match="/heldout is not a folder; needs .*/train and .*/heldout or val"):
        split_of("image_folder", "heldout", folder=str(folder))


def test_a_heldout_class_that_is_not_trained_is_named(folder):
    shutil.copytree(folder / "heldout" / "cat", folder / "heldout" / "dog")
    (folder / "train" / "dog").mkdir()
    with pytest.raises(UserError, match=r"heldout/dog: no such class with images in .*/train \(ant, bee, cat\)"):
        split_of("image_folder", "heldout", folder=str(folder))


@pytest.mark.parametrize(
    "content", [lambda whole: whole[:40], lambda whole: b"", lambda whole: whole[:50] + b"\0\0\0\1" + whole[54:]]
)
def test_a_damaged_picture_is_named_with_what_to_do(folder, content):
    path = folder / "train" / "bee" / "pic.0.png"
    path.write_bytes(content(path.read_bytes()))
    records = split_of("image_folder", folder=str(folder))
    records[2]
    with pytest.raises(UserError, match="bee/pic.0.png: no readable image .*; remove or replace it"):
        records[3]


def test_a_folder_without_pictures_is_named(tmp_path):
    (tmp_path / "train" / "ant").mkdir(parents=True)
    with pytest.raises(
        UserError, match="train holds neither images .* passed over: folders without a picture.*: 1 .ant/."
    ):
        split_of("image_folder", folder=str(tmp_path))


def with_captions(folder, split="train", rows=None, name="captions.jsonl"):
    """Write a table of captions of all pictures of a split, or of some."""
    root = folder / split
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("pic.*"))
    rows = [(file, f"a picture, {file}") for file in files] if rows is None else rows
    lines = [json.dumps({"file": file, "caption": caption}) for file, caption in rows]
    if name.endswith(".parquet"):
        polars.DataFrame(rows, ["file", "caption"], orient="row").write_parquet(root / name)
        return root / name
    if name.endswith(".csv"):
        lines = ["file,caption", *(f'{file},"{caption}"' for file, caption in rows)]
    (root / name).write_text("".join(f"{line}\n" for line in lines))
    return root / name


def test_a_caption_with_a_placeholder_that_stands_for_nothing_is_refused(folder):
    assert split_of("image_folder", folder=str(folder), caption="a {class}")[0].caption == "a ant"
    with pytest.raises(UserError, match=r"data.source.caption: \{clas\} is unknown; valid: \{class\}"):
        split_of("image_folder", folder=str(folder), caption="a {clas}")


@pytest.mark.parametrize("name", ["captions.jsonl", "captions.csv", "captions.parquet"])
def test_a_table_gives_every_picture_its_caption(folder, name):
    assert not split_of("image_folder", folder=str(folder)).has_captions
    with_captions(folder, name=name)
    records = split_of("image_folder", folder=str(folder))
    assert records.has_captions and records[3].caption == "a picture, bee/pic.0.png" and records[3].label == 1


@pytest.mark.parametrize("name", ["captions.jsonl", "captions.csv"])
def test_a_table_may_begin_with_a_mark_and_end_with_empty_lines(folder, name):
    table = with_captions(folder, name=name)
    table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes() + b"\n\n")
    assert split_of("image_folder", folder=str(folder))[3].caption == "a picture, bee/pic.0.png"


def test_rows_of_captions_without_an_image_are_counted(folder):
    root = folder / "train"
    rows = [(path.relative_to(root).as_posix(), "x") for path in root.rglob("pic.*")]
    before = split_of("image_folder", folder=str(folder)).passed_over
    with_captions(folder, rows=[*rows, ("ant/gone.png", "an ant")], name="captions.csv")
    after = split_of("image_folder", folder=str(folder)).passed_over
    assert [item for item in after if item not in before] == [
        PassedOverItem("ant/gone.png", "rows of captions.csv without an image")
    ]
    with_captions(folder, rows=[(f"train/{file}", text) for file, text in rows], name="captions.csv")
    with pytest.raises(UserError, match="no caption of ant/.* one, and 9 of 9 lack one; the first file .* is train/"):
        split_of("image_folder", folder=str(folder))


def test_a_caption_of_digits_is_a_text(folder):
    root = folder / "train"
    rows = [(path.relative_to(root).as_posix(), "7") for path in root.rglob("pic.*")]
    with_captions(folder, rows=rows, name="captions.csv")
    assert {record.caption for record in records_of("image_folder", folder=str(folder))} == {"7"}


def test_a_changed_caption_is_other_content(folder):
    contents = [source("image_folder", folder=str(folder)).content_hash()]
    for caption in ("an ant", "a bee"):
        with_captions(folder, "heldout", [("ant/pic.0.png", caption), *(("cat/pic.0.png", ""), ("cat/pic.1.JPG", ""))])
        contents.append(source("image_folder", folder=str(folder)).content_hash())
    assert len(set(contents)) == 3


@pytest.mark.parametrize(
    "rows, text, message",
    [
        (None, '{"file": "ant/pic.0.png"}\n', "captions.jsonl: no readable table .no column caption; there are: file."),
        (None, "an ant\n", "captions.jsonl: no readable table .line 1: "),
        (None, '{"file": "ant/pic.0.png", "caption": null}\n', "captions.jsonl: no caption of ant/pic.0.png; every"),
        (None, '{"file": "ant/pic.0.png", "caption": 7}\n', "captions.jsonl: caption of ant/pic.0.png: 7 is not a"),
        (None, "file,caption\nant/pic.0.png\n", "captions.csv: no readable table .line 2: 1 cells, where 2 columns"),
        (
            [("ant/pic.0.png", "x"), ("ant/pic.0.png", "y")],
            None,
            "captions.jsonl: line 2: ant/pic.0.png is in line 1, too; remove one",
        ),
    ],
)
def test_a_table_that_lacks_something_is_named(folder, rows, text, message):
    table = with_captions(folder, rows=rows, name=message.split(":")[0])
    if text is not None:
        table.write_text(text)
    with pytest.raises(UserError, match=message):
        split_of("image_folder", folder=str(folder))


def test_two_tables_are_one_too_many(folder):
    with_captions(folder)
    with_captions(folder, name="captions.csv")
    with pytest.raises(UserError, match="two tables of captions; remove one"):
        split_of("image_folder", folder=str(folder))


def test_pictures_without_folders_of_classes_have_no_class(tmp_path):
    records = split_of("image_folder", folder=str(pictures.write_folder(tmp_path)))
    assert records.labels is None and records.class_names == [] and len(records) == 256
    assert records[0].label is None and records[0].caption == pictures.captions()[1] == "gorilla"
    assert records[0].key == "train-001_png" and records[0].image.size == (24, 24)
    assert len(split_of("image_folder", "heldout", folder=str(tmp_path))) == 64


def test_keys_and_content_of_two_folders_stay_as_they_always_were(folder):
    keys = [record.key for record in records_of("image_folder", "heldout", folder=str(folder))]
    assert keys == ["heldout-ant-pic_0_png", "heldout-cat-pic_0_png", "heldout-cat-pic_1_JPG"]
    files = ["ant/pic.0.png", "ant/pic.1.JPG", "ant/pic.2.bmp", "bee/pic.0.png", "bee/pic.1.JPG"]
    files = [f"train/{name}" for name in (*files, *(f"cat/pic.{end}" for end in ("0.png", "1.JPG", "2.bmp", "3.png")))]
    files += [f"heldout/{name}" for name in ("ant/pic.0.png", "cat/pic.0.png", "cat/pic.1.JPG")]
    stated = repr([(name, (folder / name).stat().st_size) for name in files])
    assert source("image_folder", folder=str(folder)).content_hash() == hashlib.sha256(stated.encode()).hexdigest()
    assert settings_to_hash(source("image_folder", folder=str(folder)).settings) == {"name": "image_folder"}
    shared = source("image_folder", folder=str(folder), heldout={"share": 0.1}).settings
    assert settings_to_hash(shared) == {"name": "image_folder", "heldout": {"share": 0.1}}


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_share_of_one_folder_is_held_out_by_key(folder, share):
    keys = {"folder": str(folder / "train"), "heldout": {"share": share}}
    held, trained = (records_of("image_folder", split, **keys) for split in ("heldout", "train"))
    assert all(is_heldout(record.key, share) for record in held)
    assert not any(is_heldout(record.key, share) for record in trained)
    assert {(record.key, record.label) for record in held + trained} == {
        (f"{name}-pic_{number}_{end}", label)
        for label, (name, count) in enumerate((("ant", 3), ("bee", 2), ("cat", 4)))
        for number, end in enumerate(("png", "JPG", "bmp", "png")[:count])
    }


def test_another_share_is_other_content_with_the_same_keys(folder):
    contents = [
        source("image_folder", folder=str(folder / "train"), heldout={"share": share}).content_hash()
        for share in (0.5, 0.501, 0.8)
    ]
    assert contents[0] == contents[1] != contents[2]


def test_a_share_has_captions_from_one_table(folder):
    with_captions(folder)
    keys = {"folder": str(folder / "train"), "heldout": {"share": 0.5}}
    records = [*records_of("image_folder", "train", **keys), *records_of("image_folder", "heldout", **keys)]
    assert len({record.caption for record in records}) == 9 and records[0].caption.startswith("a picture, ")


def test_a_share_that_leaves_a_split_without_images_is_refused(folder):
    with pytest.raises(UserError, match="data.source.heldout.share: 1e-09: leaves no heldout images in .*/train"):
        split_of("image_folder", "heldout", folder=str(folder / "train"), heldout={"share": 1e-9})


def test_the_held_out_images_may_lie_elsewhere(folder):
    (folder / "heldout").rename(folder / "elsewhere")
    keys = {"folder": str(folder / "train"), "heldout": {"folder": str(folder / "elsewhere")}}
    records = records_of("image_folder", "heldout", **keys)
    assert [(record.key, record.label) for record in records] == [
        ("heldout-ant-pic_0_png", 0),
        ("heldout-cat-pic_0_png", 2),
        ("heldout-cat-pic_1_JPG", 2),
    ]
    assert len(split_of("image_folder", **keys)) == 9
    with pytest.raises(UserError, match="data.source.heldout.folder: .*/nowhere is not a folder"):
        split_of("image_folder", "heldout", **keys | {"heldout": {"folder": str(folder / "nowhere")}})


@pytest.mark.parametrize(
    "heldout, message",
    [
        ({}, "heldout: .*needs one of folder, share"),
        ({"folder": "x", "share": 0.1}, "heldout: .*needs one of folder, share"),
        ({"share": 0}, "heldout.share: input should be greater than 0, found 0"),
        ({"share": 1}, "heldout.share: input should be less than 1, found 1"),
        ({"part": 0.1}, "heldout.part: unknown key; valid keys: folder, share"),
    ],
)
def test_held_out_images_that_are_not_described_are_refused(heldout, message):
    with pytest.raises(ConfigError, match=message):
        validate(SourceSettings, {"name": "image_folder", "folder": "x", "heldout": heldout}, "x.yaml")


def test_two_files_with_one_key_are_named(folder):
    (folder / "train" / "cat" / "pic_1.JPG").write_bytes(b"")
    with pytest.raises(UserError, match="cat/pic.1.JPG and cat/pic_1.JPG have the same key, cat-pic_1_JPG; rename one"):
        split_of("image_folder", folder=str(folder))


def test_the_images_of_a_class_may_be_in_a_folder_of_that_name_alone(folder):
    before = split_of("image_folder", folder=str(folder))
    for name in ("ant", "cat"):
        inner = folder / "train" / name / "images"
        inner.mkdir()
        for picture in folder.glob(f"train/{name}/pic*"):
            picture.rename(inner / picture.name)
    records = split_of("image_folder", folder=str(folder))
    assert records.class_names == before.class_names and records.labels.tolist() == before.labels.tolist()
    assert (
        records[0].file.endswith("ant/images/pic.0.png")
        and len(split_of("image_folder", "heldout", folder=str(folder))) == 3
    )
    # Of a class with images beside that folder, it is no more than another folder.
    (folder / "train/cat/images/pic.0.png").rename(folder / "train/cat/pic.0.png")
    with pytest.raises(UserError, match="train/cat/images: a folder in that of a class"):
        split_of("image_folder", folder=str(folder))


def test_a_folder_inside_a_class_is_refused(folder):
    (folder / "train" / "cat" / ".thumbs").mkdir()
    split_of("image_folder", folder=str(folder))
    (folder / "train" / "cat" / "kittens").mkdir()
    with pytest.raises(UserError, match="train/cat/kittens: a folder in that of a class; move its images up"):
        split_of("image_folder", folder=str(folder))
