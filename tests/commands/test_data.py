"""The verb data: twenty kinds of folders, each right or refused with the reason, and experiments that submit takes."""

import io
import json
import os
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from hpcddm.commands import data as verb
from hpcddm.data.folders import survey
from tests.data.oddities import HEIC, class_folder, encoded, write_tar
from tests.data.sources import ilsvrc
from tests.helpers import REPOSITORY, hpcddm, python, write_source
from tests.pictures import IMG2DATASET

HUGGINGFACE = REPOSITORY / "tests" / "fixtures" / "huggingface"


def flat(root, count=120, side=9, end="png"):
    """Pictures in one folder, the first ones of the given side."""
    root.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 255, (side, side + 3, 3)).astype("uint8")
        Image.fromarray(pixels).save(root / f"{number:03d}.{end}")
    return root


def said(folder, code=0):
    """The verb's object for programs, and what it prints for people."""
    shown, as_json = hpcddm("data", folder), hpcddm("data", folder, "--json")
    assert (shown.exit_code, as_json.exit_code) == (code, code), shown.output
    assert "Traceback" not in shown.output
    return json.loads(as_json.stdout), shown.output


def accepted(tmp_path, folder):
    """Check that submit takes every printed experiment as it is; return the readings that have one, and the output."""
    values, shown = said(folder)
    readings = [one for one in values["readings"] if one["yaml"]]
    assert readings
    for number, reading in enumerate(readings):
        text = reading["yaml"]
        assert text in shown and len(text.splitlines()) <= 10
        file = tmp_path / f"reading-{number}.yaml"
        file.write_text(text)
        run = tmp_path / f"run-{number}"
        done = hpcddm("submit", file, "--site", "embedded", "--dry-run", "--run-dir", run)
        assert done.exit_code == 0, f"{text}\n{done.output}"
    return readings, shown


def source_of(reading):
    return yaml.safe_load(reading["yaml"])["data"]["source"]


def sources(readings):
    return [source_of(one)["name"] for one in readings]


def test_a_folder_per_class(tmp_path):
    readings, shown = accepted(tmp_path, class_folder(tmp_path / "d", count=120))
    assert sources(readings) == ["image_folder"] and readings[0]["class_names"] == ["cat", "dog"]
    assert (readings[0]["images"], readings[0]["widths"]) == (240, [9, 9])
    assert "classes   2: cat, dog" in shown and "save the lines as mine.yaml; next: hpcddm submit mine.yaml" in shown


@pytest.mark.parametrize("side, size", [(28, 28), (40, 32), (70, 64), (200, 128), (300, 256)])
def test_the_size_of_images_follows_from_the_shorter_sides(tmp_path, side, size):
    readings, _ = accepted(tmp_path, flat(tmp_path / "d", 110, side, "jpg"))
    assert yaml.safe_load(readings[0]["yaml"])["data"]["image_size"] == size
    assert (readings[0]["widths"], readings[0]["heights"]) == ([side + 3] * 2, [side] * 2)


@pytest.mark.parametrize(
    "train, heldout, keys",
    [
        ("train", "val", None),
        ("train", "heldout", None),
        ("train", "test", "test"),
        ("training", "Validation", "Validation"),
    ],
)
def test_folders_of_splits(tmp_path, train, heldout, keys):
    root = tmp_path / "d"
    class_folder(root / train, count=20)
    class_folder(root / heldout, count=20)
    readings, _ = accepted(tmp_path, root)
    source = source_of(readings[0])
    assert source["folder"] == str(root if keys is None else root / train)
    assert source.get("heldout") == (None if keys is None else {"folder": str(root / keys)})
    assert readings[0]["images"] == 80


def test_a_test_split_without_classes_is_not_used(tmp_path):
    class_folder(tmp_path / "d" / "train", count=120)
    flat(tmp_path / "d" / "test", 10)
    readings, shown = accepted(tmp_path, tmp_path / "d")
    assert source_of(readings[0]) == {"name": "image_folder", "folder": str(tmp_path / "d" / "train")}
    assert "the folder test is not used" in shown


@pytest.mark.parametrize(
    "name, what",
    [
        ("test", "a split"),
        ("Val2017", "a split"),
        ("train_masks", "a split"),
        ("bird-labels", "annotations"),
        ("bird", ""),
    ],
)
def test_a_class_that_may_be_none_is_odd_and_submit_says_the_classes(tmp_path, name, what):
    class_folder(tmp_path / "d", ("cat", "dog", name), count=80)
    readings, shown = accepted(tmp_path, tmp_path / "d")
    assert (f"odd       the folder {name} has the name of {what}, and is taken for a class" in shown) == bool(what)
    done = hpcddm("submit", tmp_path / "reading-0.yaml", "--site", "embedded", "--dry-run", "--run-dir", tmp_path / "r")
    assert f"classes in train   3 classes: {', '.join(readings[0]['class_names'])}\n" in done.output


@pytest.mark.parametrize(
    "name", ["annotations/captions_train2017.json", "captions.txt", "Flickr8k.token.txt", "results_20130124.token"]
)
def test_captions_of_coco_and_flickr_are_said_not_to_be_used(tmp_path, name):
    flat(tmp_path / "d" / "images")
    (tmp_path / "d" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "d" / name).write_text("{}")
    (tmp_path / "d" / "notes.txt").write_text("x")
    _, shown = said(tmp_path / "d")
    assert f"odd       not used: {name}, which may have captions; write a table metadata.csv" in shown


def test_a_folder_too_high_and_one_too_low(tmp_path):
    class_folder(tmp_path / "a" / "b" / "train", count=120)
    class_folder(tmp_path / "a" / "b" / "val", count=30)
    readings, _ = accepted(tmp_path, tmp_path / "a")
    assert source_of(readings[0])["folder"] == str(tmp_path / "a" / "b")
    _, shown = accepted(tmp_path, tmp_path / "a" / "b" / "train")
    assert f"looks like one split of {tmp_path / 'a' / 'b'}" in shown
    assert f"next: hpcddm data {tmp_path / 'a' / 'b'}\n" in shown


def test_tiny_imagenet_is_read_as_it_unpacks(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for synset in ("n01443537", "n01629819"):
        class_folder(root / "train" / synset, ("images",), count=60)
        (root / "train" / synset / f"{synset}_boxes.txt").write_text("0.JPEG\t0\t0\t9\t9\n")
    for split in ("val", "test"):
        class_folder(root / split, ("images",), count=30)
    readings, shown = accepted(tmp_path, root)
    assert source_of(readings[0])["folder"] == str(root / "train") and "classes   2: n01443537, n01629819" in shown


def test_folders_inside_those_of_classes_are_refused(tmp_path):
    class_folder(tmp_path / "d" / "cat", ("old", "new"))
    class_folder(tmp_path / "d" / "dog", ("old", "new"))
    _, shown = said(tmp_path / "d", 1)
    assert f"name the folder that holds those of the classes, such as {tmp_path / 'd'}" in shown
    class_folder(tmp_path / "e", count=120)
    class_folder(tmp_path / "e" / "cat", ("old",))
    assert "a folder in that of a class" in said(tmp_path / "e", 1)[1]


def test_captions_beside_pictures(tmp_path):
    root = flat(tmp_path / "d")
    for number in range(120):
        (root / f"{number:03d}.txt").write_text(
            f"red thing {number}\na second line\n" if number % 3 else f"thing {number}"
        )
    readings, shown = accepted(tmp_path, root)
    assert [one["condition"] for one in readings] == ["captions"]
    assert source_of(readings[0])["caption_item"] == 0 and "several lines" in shown
    assert readings[0]["example"].startswith("thing ")


def test_classes_and_a_table_of_captions_are_two_readings(tmp_path):
    root = class_folder(tmp_path / "d", count=120)
    names = [f"{path.parent.name}/{path.name}" for path in sorted(root.rglob("*.png"))]
    (root / "metadata.csv").write_text("file_name,text\n" + "".join(f"{name},a {name[:3]}\n" for name in names))
    readings, shown = accepted(tmp_path, root)
    assert [one["condition"] for one in readings] == ["classes", "captions"]
    assert "reading 1 of 2" in shown and "reading 2 of 2" in shown and "metadata.csv, column text" in shown
    assert "condition" not in yaml.safe_load(readings[0]["yaml"])["data"]


def test_two_columns_and_files_are_readings_of_their_own(tmp_path):
    root = flat(tmp_path / "d")
    rows = "".join(f"{number:03d}.png,short,long text\n" for number in range(120))
    (root / "metadata.csv").write_text("file_name,text,caption\n" + rows)
    for number in range(120):
        (root / f"{number:03d}.txt").write_text("beside")
    readings, _ = accepted(tmp_path, root)
    assert [source_of(one)["caption_from"] for one in readings] == ["table:text", "table:caption", "txt"]
    assert [one["example"] for one in readings] == ["short", "long text", "beside"]


def test_a_table_that_lacks_pictures_is_named(tmp_path):
    root = flat(tmp_path / "d", 40)
    (root / "metadata.csv").write_text("file_name,text\n000.png,a\n")
    values, shown = said(root, 1)
    assert "every image needs one" in values["readings"][0]["error"] and "metadata.csv" in shown


def test_a_table_above_the_folder_of_the_pictures(tmp_path):
    flat(tmp_path / "d" / "images")
    rows = [json.dumps({"file_name": f"images/{number:03d}.png", "text": f"thing {number}"}) for number in range(120)]
    (tmp_path / "d" / "metadata.jsonl").write_text("\n".join(rows))
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert "captions" in [one["condition"] for one in readings]
    assert source_of(readings[-1])["folder"] == str(tmp_path / "d")
    _, shown = accepted(tmp_path, tmp_path / "d" / "images")
    assert f"{tmp_path / 'd'} has metadata.jsonl" in shown


def test_names_of_classes(tmp_path):
    root = class_folder(tmp_path / "d", count=120)
    (root / "classes.txt").write_text("Felis catus\nCanis familiaris\n")
    readings, _ = accepted(tmp_path, root)
    assert readings[0]["class_names"] == ["Felis catus", "Canis familiaris"]
    (root / "classes.txt").write_text("one line\n")
    assert "classes.txt" in said(root, 1)[1]


@pytest.mark.parametrize("layout", ilsvrc.LAYOUTS, ids=lambda layout: layout.__name__)
def test_imagenet(tmp_path, layout, monkeypatch):
    monkeypatch.setattr(ilsvrc, "VALIDATION", {number: 7 * number % 10 for number in range(1, 41)})
    layout(tmp_path / "d")
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert source_of(readings[0]) == {"name": "imagenet", "folder": str(tmp_path / "d")}
    assert readings[0]["class_names"] == ilsvrc.NAMES and readings[0]["images"] == 60


def test_imagenet_without_labels_of_val_and_without_val(tmp_path):
    ilsvrc.write_images(tmp_path / "d", of_class=20)
    readings, shown = accepted(tmp_path, tmp_path / "d")
    assert source_of(readings[0])["heldout"] == {"share": 0.2}
    assert "val has no classes: put LOC_val_solution.csv" in shown
    for path in (tmp_path / "d" / "val").iterdir():
        path.unlink()
    (tmp_path / "d" / "val").rmdir()
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert source_of(readings[0]) == {"name": "imagenet", "folder": str(tmp_path / "d")}


@pytest.mark.parametrize("count, share", [(22, 0.5), (60, 0.25), (80, None)])
def test_more_of_few_images_are_held_out(tmp_path, count, share):
    readings, _ = accepted(tmp_path, class_folder(tmp_path / "d", count=count))
    assert source_of(readings[0]).get("heldout") == (None if share is None else {"share": share})


def test_a_split_of_few_images_is_not_held_out(tmp_path):
    root = tmp_path / "d"
    class_folder(root / "train", count=120)
    class_folder(root / "val", count=4)
    readings, shown = accepted(tmp_path, root)
    assert source_of(readings[0]) == {"name": "image_folder", "folder": str(root / "train")}
    assert "the folder val is not used" in shown


def test_few_images_are_described_and_refused(tmp_path):
    ilsvrc.sorted_val(tmp_path / "d")
    values, shown = said(tmp_path / "d", 1)
    assert values["readings"][0]["class_names"] == ilsvrc.NAMES and "ImageNet (ILSVRC 2012)" in shown
    assert "val has fewer than 20 images" in shown and "evaluate.images: 20 samples" in shown


def test_the_train_folder_of_imagenet(tmp_path):
    ilsvrc.write_images(tmp_path / "d", is_flat=False, of_class=12)
    _, shown = accepted(tmp_path, tmp_path / "d" / "train")
    assert f"next: hpcddm data {tmp_path / 'd'}\n" in shown


@pytest.mark.parametrize("kind, captions", [("saved", 2), ("hub", 2), ("small_groups", 2), ("pandas", 1)])
def test_data_sets_of_hugging_face(tmp_path, kind, captions):
    readings, _ = accepted(tmp_path, HUGGINGFACE / kind)
    assert sources(readings) == ["huggingface"] * (1 + captions)
    assert [one["condition"] for one in readings] == ["classes"] + ["captions"] * captions
    first = readings[0]
    assert (first["images"], first["is_exact"], first["widths"]) == (54, True, [24, 24])
    assert first["class_names"] == (["0", "1", "2"] if kind == "pandas" else ["face", "animal", "thing"])
    assert yaml.safe_load(first["yaml"])["data"]["num_classes"] == 3
    if captions == 2:
        assert source_of(readings[2]) | {"folder": ""} == {
            "name": "huggingface",
            "folder": "",
            "caption": "captions",
            "caption_item": 0,
        }


def rows(count, **columns):
    images = [{"bytes": encoded(number), "path": None} for number in range(count)]
    return pa.table(
        {"image": images} | {name: [value(number) for number in range(count)] for name, value in columns.items()}
    )


def test_one_split_of_parquet_holds_a_share_out(tmp_path):
    (tmp_path / "d").mkdir()
    pq.write_table(rows(150, label=lambda number: ["low", "high"][number % 2]), tmp_path / "d" / "train.parquet")
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert source_of(readings[0]) == {"name": "huggingface", "folder": str(tmp_path / "d")}
    assert readings[0]["class_names"] == ["high", "low"]


def test_a_label_that_is_no_class_is_left_out(tmp_path):
    (tmp_path / "d").mkdir()
    pq.write_table(rows(150, label=lambda number: number / 7), tmp_path / "d" / "train.parquet")
    readings, shown = accepted(tmp_path, tmp_path / "d")
    assert source_of(readings[0])["label"] is None and "has the type double" in shown
    pq.write_table(rows(150, label=lambda number: number % 3 - 1), tmp_path / "d" / "train.parquet")
    readings, shown = accepted(tmp_path, tmp_path / "d")
    assert source_of(readings[0])["label"] is None and "has class -1" in shown


def test_a_test_split_without_classes_holds_a_share_out(tmp_path):
    (tmp_path / "d").mkdir()
    pq.write_table(rows(150, label=lambda number: number % 3), tmp_path / "d" / "train.parquet")
    pq.write_table(rows(50, label=lambda number: -1), tmp_path / "d" / "test.parquet")
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert source_of(readings[0])["heldout"] == {"share": 0.2} and readings[0]["images"] == 150


def test_two_data_sets_in_folders_are_readings_of_their_own(tmp_path):
    for name in ("en", "fr"):
        (tmp_path / "d" / name).mkdir(parents=True)
        pq.write_table(rows(150), tmp_path / "d" / name / "train.parquet")
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert [source_of(one)["files"] for one in readings] == ["en/**/*.parquet", "fr/**/*.parquet", "**/*.parquet"]
    assert [one["images"] for one in readings] == [150, 150, 300]


def test_parts_that_are_missing_and_addresses(tmp_path):
    (tmp_path / "d").mkdir()
    pq.write_table(rows(150), tmp_path / "d" / "train-00000-of-00002.parquet")
    assert "1 of 2 files of the split train are here" in said(tmp_path / "d", 1)[1]
    (tmp_path / "e").mkdir()
    pq.write_table(pa.table({"url": ["http://a/b.jpg"], "text": ["a"]}), tmp_path / "e" / "train.parquet")
    assert "img2dataset" in said(tmp_path / "e", 1)[1]
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "train.parquet").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert "git lfs pull" in said(tmp_path / "f", 1)[1]


def test_a_missing_package_is_named(tmp_path):
    code = "import sys; sys.modules['pyarrow'] = None; from hpcddm.cli import main; main(sys.argv[1:])"
    done = python(code, "data", HUGGINGFACE / "hub")
    assert done.returncode == 1 and "pip install pyarrow" in done.stderr


def test_tars_of_img2dataset(tmp_path):
    readings, shown = accepted(tmp_path, IMG2DATASET)
    assert sources(readings) == ["webdataset"] and readings[0]["condition"] == "captions"
    assert (readings[0]["images"], readings[0]["example"] != "") == (100, True)
    assert "not as huggingface" in shown


def samples(first, count, ends=("png",), **values):
    members = []
    for number in range(first, first + count):
        members += [(f"{number:04d}.{end}", encoded(number)) for end in ends]
        members += [(f"{number:04d}.{end}", value(number).encode()) for end, value in values.items()]
    return members


def test_tars_with_classes_and_held_out_ones(tmp_path):
    write_tar(tmp_path / "d" / "train" / "0.tar", samples(0, 80, cls=lambda number: str(number % 2)))
    write_tar(tmp_path / "d" / "val" / "0.tar", samples(80, 80, cls=lambda number: str(number % 2)))
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert source_of(readings[0])["heldout"] == {"tars": "val/**/*.tar"}
    assert yaml.safe_load(readings[0]["yaml"])["data"]["num_classes"] == 2


def test_tars_with_captions_in_json_and_the_same_keys(tmp_path):
    for number in range(2):
        described = samples(0, 60, json=lambda key: json.dumps({"caption": f"thing {key}"}))
        write_tar(tmp_path / "d" / f"{number}.tar", described)
    readings, _ = accepted(tmp_path, tmp_path / "d")
    source = source_of(readings[0])
    assert (source["caption"], source["prefix_keys"]) == ("json:caption", True)
    assert readings[0]["example"] == "thing 0"


def test_tars_with_two_images_of_a_sample_are_two_readings(tmp_path):
    write_tar(tmp_path / "d" / "0.tar", samples(0, 120, ends=("left.png", "right.png")))
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert [source_of(one)["image"] for one in readings] == [["left.png"], ["right.png"]]


def test_a_tar_of_tars_and_compressed_tars(tmp_path):
    inner = write_tar(tmp_path / "n01440764.tar", samples(0, 2))
    write_tar(tmp_path / "d" / "all.tar", [("n01440764.tar", inner.read_bytes())])
    assert "no samples with an image" in said(tmp_path / "d", 1)[1]
    write_tar(tmp_path / "e" / "x.tar", samples(0, 2))
    with tarfile.open(tmp_path / "e" / "y.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("a"), io.BytesIO())
    (tmp_path / "e" / "x.tar").unlink()
    assert "y.tar.gz is compressed" in said(tmp_path / "e", 1)[1]


def test_files_of_mnist(tmp_path):
    write_source(tmp_path / "d" / "FashionMNIST" / "raw")
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert source_of(readings[0]) == {"name": "idx", "folder": str(tmp_path / "d" / "FashionMNIST" / "raw")}
    assert (readings[0]["images"], readings[0]["class_names"]) == (136, ["0", "1", "2", "3"])
    assert yaml.safe_load(readings[0]["yaml"])["data"]["channels"] == 1


def test_arrays(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (200, 3, 16, 16)).astype("uint8")
    (tmp_path / "d").mkdir()
    np.savez(tmp_path / "d" / "all.npz", x_train=pixels, y_train=np.arange(200) % 2, x_test=pixels[:50])
    readings, shown = accepted(tmp_path, tmp_path / "d")
    expected = {"images": "x_train", "labels": "y_train", "channels_first": True}
    assert source_of(readings[0]) == {"name": "arrays", "file": str(tmp_path / "d" / "all.npz"), **expected}
    assert "x_test" in shown
    with h5py.File(tmp_path / "e.h5", "w") as file:
        file["images"] = pixels.transpose(0, 2, 3, 1)
        file["texts"] = [f"thing {number}" for number in range(200)]
    readings, _ = accepted(tmp_path, tmp_path / "e.h5")
    assert source_of(readings[0])["captions"] == "texts" and readings[0]["example"] == "thing 0"
    np.savez(tmp_path / "f.npz", images=pixels.astype("float32"))
    assert "float32" in said(tmp_path / "f.npz", 1)[1]


def test_one_file_in_place_of_a_folder(tmp_path):
    tar = write_tar(tmp_path / "0.tar", samples(0, 120))
    pq.write_table(rows(150), tmp_path / "train.parquet")
    assert source_of(accepted(tmp_path, tar)[0][0])["tars"] == "0.tar"
    assert source_of(accepted(tmp_path, tmp_path / "train.parquet")[0][0])["files"] == "train.parquet"
    for name, word in (("a.zip", "unpack"), ("a.png", "folder"), ("a.tar.gz", "compressed")):
        (tmp_path / name).write_bytes(encoded(1) if name == "a.png" else b"x")
        assert word in said(tmp_path / name, 1)[1]


def test_tars_among_folders_of_pictures_are_two_readings(tmp_path):
    class_folder(tmp_path / "d", count=120)
    write_tar(tmp_path / "d" / "0.tar", samples(0, 120))
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert set(sources(readings)) == {"image_folder", "webdataset"}


def test_what_is_odd_is_said(tmp_path):
    root = class_folder(tmp_path / "d", count=120)
    (root / "cat" / "000.png").write_bytes(b"")
    (root / "cat" / "001.png").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    (root / "cat" / "late").write_bytes(encoded(5))
    (root / "dog" / "x.heic").write_bytes(HEIC)
    (root / "stray.png").write_bytes(encoded(6))
    (root / "gone.png").symlink_to(tmp_path / "nowhere")
    (root / ".cache").mkdir()
    (root / "empty").mkdir()
    _, shown = accepted(tmp_path, root)
    for line in (
        "2 of 200 opened cannot be used: cat/000.png (the file is empty); 'git lfs pull' fetches the files",
        "1 files without extension: pictures in spite of the name",
        "1 files .heic: HEIC, which is not read",
        "pictures without a class: 1 in",
        "1 links lead nowhere, such as gone.png",
        "1 hidden files",
        "1 folders without a picture, such as empty",
    ):
        assert line in shown, line


def test_folders_without_images(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no files; name the folder that holds the images" in said(tmp_path / "empty", 1)[1]
    (tmp_path / "others").mkdir()
    for number in range(7):
        (tmp_path / "others" / f"{number}.dcm").write_bytes(b"x" * 200)
    (tmp_path / "others" / "a.xml").write_text("<a/>")
    values, shown = said(tmp_path / "others", 1)
    assert list(values["extensions"].items()) == [(".dcm", 7), (".xml", 1)]
    assert "it has .dcm 7, .xml 1" in shown
    for name in ("arrays", "huggingface", "idx", "image_folder", "imagenet", "webdataset"):
        assert f"\n  {name}: " in shown


def test_a_folder_that_is_none(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert "no such folder" in hpcddm("data", tmp_path / "nowhere").output
    assert "a link that leads nowhere" in hpcddm("data", tmp_path / "link").output
    assert hpcddm("data", tmp_path / "nowhere").exit_code == 2


@contextmanager
def closed(folder, tmp_path):
    """Close a folder to everybody; root, who may read everything, becomes somebody else."""
    folder.chmod(0)
    for path in (tmp_path, *tmp_path.parents):
        if path.is_relative_to(tempfile.gettempdir()) and path != Path(tempfile.gettempdir()):
            path.chmod(0o755)
    try:
        if not os.getuid():
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(os.getuid())
        folder.chmod(0o755)


def test_a_folder_that_cannot_be_read(tmp_path):
    root = class_folder(tmp_path / "d", count=120)
    said(root)
    with closed(root / "cat", tmp_path):
        inner, itself = hpcddm("data", root), hpcddm("data", root / "cat")
    assert inner.exit_code == 1 and f"{root / 'cat'}: cannot be read" in inner.output
    assert itself.exit_code == 1 and f"{root / 'cat'}: cannot be read (Permission denied)" in itself.output


def test_a_folder_in_one_that_cannot_be_entered(tmp_path):
    root = class_folder(tmp_path / "shut" / "d")
    with closed(tmp_path / "shut", tmp_path):
        done = hpcddm("data", root)
    assert done.exit_code == 1 and f"{root}: cannot be read (Permission denied)" in done.output


OPENED: list[str] = []
sys.addaudithook(lambda event, values: OPENED.append(str(values[0])) if event == "open" else None)


def empty_files(root, count, end):
    root.mkdir()
    for number in range(count):
        os.close(os.open(root / f"{number:07d}{end}", os.O_CREAT | os.O_WRONLY))
    return root


@pytest.mark.parametrize("end", [".jpg", "", ".txt"])
def test_of_many_files_few_are_opened(tmp_path, end):
    root = empty_files(tmp_path / "d", 50_000, end)
    OPENED.clear()
    done = hpcddm("data", root, "--json")
    opened = [path for path in OPENED if path.startswith(str(root))]
    values = json.loads(done.stdout)
    assert done.exit_code == 1 and values["files"] == 50_000 and len(opened) <= 300
    if end == ".jpg":
        assert "none of 200 images that were opened can be used" in values["readings"][0]["error"]


def test_many_good_files_are_counted_by_name(tmp_path):
    root = empty_files(tmp_path / "d", 20_000, ".png")
    for path in root.iterdir():
        path.unlink()
        os.link(tmp_path / "one.png", path) if (tmp_path / "one.png").exists() else path.write_bytes(encoded(1))
        if not (tmp_path / "one.png").exists():
            os.link(path, tmp_path / "one.png")
    OPENED.clear()
    values = json.loads(hpcddm("data", root, "--json").stdout)
    assert len([path for path in OPENED if path.startswith(str(root))]) <= 300
    assert values["readings"][0]["images"] == 20_000 and values["readings"][0]["yaml"]


def test_counting_stops_at_a_limit_and_says_so(tmp_path, monkeypatch):
    root = class_folder(tmp_path / "d", count=120)
    monkeypatch.setattr(survey, "MAX_FILES", 100)
    values, shown = said(root)
    assert not values["is_whole"] and "more than 100 files" in shown and "counting stopped there" in shown


def test_a_line_says_that_it_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(verb, "QUIET_SECONDS", 0.0)
    done = hpcddm("data", class_folder(tmp_path / "d", count=120))
    assert "looking at the files in" in done.stderr


@pytest.mark.long
def test_a_million_files_take_seconds(tmp_path):
    root = empty_files(tmp_path / "d", 1_000_000, ".jpg")
    done = python("from hpcddm.cli import main; import sys; main(sys.argv[1:])", "data", root, timeout=30)
    assert done.returncode == 1 and "1,000,000 files" in done.stdout


def test_a_link_in_a_circle_ends(tmp_path):
    root = class_folder(tmp_path / "d", count=120)
    (root / "again").symlink_to(root)
    values, _ = said(root, 1)
    assert values["files"] == 240


OWN = '''"""Strips of film: one folder with reels."""

from hpcddm.config.schema import PathSetting
from hpcddm.config.sources import SourceSettings
from hpcddm.data.folders.proposal import SourceProposal, read_pictures
from hpcddm.data.image_decoding import read_image
from hpcddm.data.record import Record
from hpcddm.data.sources.base import Source, Split


class FilmSettings(SourceSettings):
    folder: PathSetting


class Reel(Split):
    labels, class_names = None, []

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 100

    def __getitem__(self, number):
        with open(f"{self.folder}/a.reel", "rb") as file:
            return Record(f"{number:03d}", read_image(file.read()))


class Film(Source[FilmSettings]):
    @classmethod
    def propose(cls, survey):
        reels = survey.paths((".reel",))
        pictures = read_pictures(survey.root, [path.name for path in reels])
        return [SourceProposal("reels", {"folder": str(survey.root)}, len(reels), pictures=pictures)] if reels else []

    def open_split(self, split):
        return Reel(self.settings.folder)

    def content_hash(self):
        return "0"
'''


def test_a_source_of_a_user_takes_part(tmp_path):
    (tmp_path / "own" / "data" / "sources").mkdir(parents=True)
    (tmp_path / "own" / "data" / "sources" / "film.py").write_text(OWN)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.reel").write_bytes(encoded(1))
    code = "from hpcddm.cli import main; import sys; main(sys.argv[1:])"
    done = python(code, "data", tmp_path / "d", HPCDDM_VARIANTS=str(tmp_path / "own"))
    assert "reels (source film)" in done.stdout, done.stderr
