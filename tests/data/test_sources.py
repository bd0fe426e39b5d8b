import gzip
import json

import numpy as np
import pytest
from PIL import Image

from hpcddm import plugins
from hpcddm.data.sources.base import Source
from hpcddm.data.sources.settings import SourceSettings
from hpcddm.errors import UserError
from tests import pictures
from tests.helpers import SIDE, write_idx, write_source


def open_split(name, folder, split="train"):
    settings = SourceSettings.model_validate({"name": name, "folder": str(folder)})
    return plugins.create(Source, settings).open_split(split)


def content(name, folder):
    settings = SourceSettings.model_validate({"name": name, "folder": str(folder)})
    return plugins.create(Source, settings).content()


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("split, count", [("train", 12), ("heldout", 5)])
def test_idx_files_plain_and_gzipped(tmp_path, suffix, split, count):
    write_source(tmp_path, train=12, heldout=5, suffix=suffix)
    records = open_split("idx", tmp_path, split)
    assert len(records) == count and records.labels.tolist() == [number % 4 for number in range(count)]
    assert records[3].label == 3 and records[3].image.size == (SIDE, SIDE)
    assert len({records[number].key for number in range(count)}) == count
    pixels = np.random.default_rng(0).integers(0, 256, (12, SIDE, SIDE))
    assert split == "heldout" or np.array_equal(np.asarray(records[11].image), pixels[11])


def torn(path, content):
    path.write_bytes(content[: len(content) // 2])


def flipped(path, content):
    path.write_bytes(content[:12] + bytes(255 - byte for byte in content[12:30]) + content[30:])


def foreign(path, content):
    path.write_bytes(gzip.compress(b"\x00\x00\x0d\x03" + b"\x00" * 100))


def longer(path, content):
    path.write_bytes(gzip.compress(gzip.decompress(content) + b"\x00"))


def empty(path, content):
    path.write_bytes(b"")


def text(path, content):
    path.write_bytes(b"<html>404</html>")


@pytest.mark.parametrize("damage", [torn, flipped, foreign, longer, empty, text])
@pytest.mark.parametrize("which", ["train-labels-idx1-ubyte.gz", "train-images-idx3-ubyte.gz"])
def test_a_damaged_idx_file_is_named(tmp_path, damage, which):
    path = write_source(tmp_path) / which
    damage(path, path.read_bytes())
    with pytest.raises(UserError, match=f"{which}: no IDX file of unsigned bytes in [13] dimensions, or a torn one"):
        open_split("idx", tmp_path)[0]


def test_images_without_labels_are_counted(tmp_path):
    write_source(tmp_path, train=12)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.zeros(11))
    with pytest.raises(UserError, match="12 images and 11 labels"):
        open_split("idx", tmp_path)[0]


@pytest.mark.parametrize("name", plugins.names("data/sources"))
def test_a_missing_folder_is_named_by_its_key(tmp_path, name):
    with pytest.raises(UserError, match=f"data.source.folder: {tmp_path}/nowhere.* is no folder"):
        open_split(name, tmp_path / "nowhere")


def test_a_missing_idx_file_is_named(tmp_path):
    with pytest.raises(UserError, match="holds no file named train-labels"):
        open_split("idx", tmp_path)


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
    (tmp_path / "train" / ".cache").mkdir()
    (tmp_path / "train" / "README").write_text("no class")
    return tmp_path


def test_a_folder_of_images_has_its_classes_in_alphabetical_order(folder):
    records = open_split("image_folder", folder)
    assert records.labels.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert [records[number].label for number in range(len(records))] == records.labels.tolist()
    assert records[3].image.size == (9, 7) and "bee" in records[3].key
    assert all("." not in records[number].key and "/" not in records[number].key for number in range(9))


def test_a_class_without_heldout_images_shifts_no_other_class(folder):
    assert open_split("image_folder", folder, "heldout").labels.tolist() == [0, 2, 2]


def test_val_is_as_good_a_name_for_the_heldout_images(folder):
    before = [record.key for record in open_split("image_folder", folder, "heldout")]
    (folder / "heldout").rename(folder / "val")
    records = open_split("image_folder", folder, "heldout")
    assert [record.key for record in records] == before and records.class_names == ["ant", "bee", "cat"]
    (folder / "heldout").mkdir()
    with pytest.raises(UserError, match="/heldout and .*/val both hold heldout images; rename or remove one"):
        open_split("image_folder", folder, "heldout")
    (folder / "heldout").rmdir()
    (folder / "val").rename(folder / "validation")
    with pytest.raises(UserError, match="/heldout is no folder; there must be .*/train and .*/heldout or val"):
        open_split("image_folder", folder, "heldout")


def test_a_heldout_class_that_is_not_trained_is_named(folder):
    (folder / "heldout" / "dog").mkdir()
    with pytest.raises(UserError, match=r"heldout/dog: no such class in .*/train \(ant, bee, cat\)"):
        open_split("image_folder", folder, "heldout")


@pytest.mark.parametrize(
    "content", [lambda whole: whole[:40], lambda whole: b"", lambda whole: whole[:50] + b"\0\0\0\1" + whole[54:]]
)
def test_a_damaged_picture_is_named_with_what_to_do(folder, content):
    path = folder / "train" / "bee" / "pic.0.png"
    path.write_bytes(content(path.read_bytes()))
    records = open_split("image_folder", folder)
    records[2]
    with pytest.raises(UserError, match="bee/pic.0.png: no readable image .*; remove or replace it"):
        records[3]


def test_a_folder_without_pictures_is_named(tmp_path):
    (tmp_path / "train" / "ant").mkdir(parents=True)
    with pytest.raises(UserError, match="train/<class>/ holds no images"):
        open_split("image_folder", tmp_path)


def with_captions(folder, split="train", rows=None, name="captions.jsonl"):
    """Write a table of captions of all pictures of a split, or of some."""
    root = folder / split
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("pic.*"))
    rows = [(file, f"a picture, {file}") for file in files] if rows is None else rows
    lines = [json.dumps({"file": file, "caption": caption}) for file, caption in rows]
    if name.endswith(".csv"):
        lines = ["file,caption", *(f'{file},"{caption}"' for file, caption in rows)]
    (root / name).write_text("".join(f"{line}\n" for line in lines))
    return root / name


@pytest.mark.parametrize("name", ["captions.jsonl", "captions.csv"])
def test_a_table_gives_every_picture_its_caption(folder, name):
    assert not open_split("image_folder", folder).has_captions
    with_captions(folder, name=name)
    records = open_split("image_folder", folder)
    assert records.has_captions and records[3].caption == "a picture, bee/pic.0.png" and records[3].label == 1


@pytest.mark.parametrize("name", ["captions.jsonl", "captions.csv"])
def test_a_table_may_begin_with_a_mark_and_end_with_empty_lines(folder, name):
    table = with_captions(folder, name=name)
    table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes() + b"\n\n")
    assert open_split("image_folder", folder)[3].caption == "a picture, bee/pic.0.png"


def test_a_changed_caption_is_other_content(folder):
    contents = [content("image_folder", folder)]
    for caption in ("an ant", "a bee"):
        with_captions(folder, "heldout", [("ant/pic.0.png", caption), *(("cat/pic.0.png", ""), ("cat/pic.1.JPG", ""))])
        contents.append(content("image_folder", folder))
    assert len(set(contents)) == 3


@pytest.mark.parametrize(
    "rows, text, message",
    [
        ([("ant/pic.0.png", "an ant")], None, "captions.jsonl: no caption of ant/pic.1.JPG; every image needs one"),
        (None, '{"file": "ant/pic.0.png"}\n', "captions.jsonl: no table .* in every row .no 'caption'."),
        (None, "an ant\n", "captions.jsonl: no table of images with `file` and `caption` in every row"),
        (None, '{"file": "ant/pic.0.png", "caption": null}\n', "captions.jsonl: ant/pic.0.png: None is no caption"),
        (None, "file,caption\nant/pic.0.png\n", "captions.csv: ant/pic.0.png: None is no caption"),
        (None, "file,caption\na.png,x\na.png,y\n", "captions.csv: a.png stands there twice; an image has one caption"),
    ],
)
def test_a_table_that_lacks_something_is_named(folder, rows, text, message):
    table = with_captions(folder, rows=rows, name=message.split(":")[0])
    if text is not None:
        table.write_text(text)
    with pytest.raises(UserError, match=message):
        open_split("image_folder", folder)


def test_two_tables_are_one_too_many(folder):
    with_captions(folder)
    with_captions(folder, name="captions.csv")
    with pytest.raises(UserError, match="two tables of captions; remove one"):
        open_split("image_folder", folder)


def test_pictures_without_folders_of_classes_have_no_class(tmp_path):
    records = open_split("image_folder", pictures.write_folder(tmp_path))
    assert records.labels is None and records.class_names == [] and len(records) == 256
    assert records[0].label is None and records[0].caption == pictures.captions()[1] == "gorilla"
    assert records[0].key == "train-001_png" and records[0].image.size == (24, 24)
    assert len(open_split("image_folder", tmp_path, "heldout")) == 64
