"""The verb data: twenty kinds of folders, each right or refused with the reason, and experiments that submit takes."""

import json
import os
import shutil
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

from hpcddm.sources.folders import survey
from tests.data.oddities import HEIC, class_folder, encoded, write_tar
from tests.helpers import REPOSITORY, hpcddm, python, write_source
from tests.pictures import IMG2DATASET
from tests.sources import ilsvrc

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
        done = hpcddm("submit", file, "--site", "embedded", "--dry-run", "--run-dir", tmp_path / f"run-{number}")
        assert done.exit_code == 0, f"{text}\n{done.output}"
        reading["data"] = yaml.safe_load(text)["data"]
    return readings, shown


def sources(tmp_path, folder):
    """The sources of all accepted readings."""
    return [one["data"]["source"] for one in accepted(tmp_path, folder)[0]]


def test_a_folder_per_class(tmp_path):
    readings, shown = accepted(tmp_path, class_folder(tmp_path / "d", count=120))
    (one,) = readings
    assert one["data"]["source"]["name"] == "image_folder" and one["class_names"] == ["cat", "dog"]
    assert (one["images"], one["widths"]) == (240, [9, 9])
    assert "classes   2: cat, dog" in shown and "save the lines as mine.yaml; next: hpcddm submit mine.yaml" in shown


@pytest.mark.parametrize("side, size", [(28, 28), (40, 32), (70, 64), (200, 128), (300, 256)])
def test_the_size_of_images_follows_from_the_shorter_sides(tmp_path, side, size):
    readings, _ = accepted(tmp_path, flat(tmp_path / "d", 110, side, "jpg"))
    assert readings[0]["data"]["image_size"] == size
    assert (readings[0]["widths"], readings[0]["heights"]) == ([side + 3] * 2, [side] * 2)


@pytest.mark.parametrize(
    "train, heldout, is_named",
    [("train", "val", 0), ("train", "heldout", 0), ("train", "test", 1), ("training", "Validation", 1)],
)
def test_folders_of_splits(tmp_path, train, heldout, is_named):
    root = tmp_path / "d"
    class_folder(root / train, count=20)
    class_folder(root / heldout, count=20)
    readings, _ = accepted(tmp_path, root)
    source = readings[0]["data"]["source"]
    assert source["folder"] == str(root / train if is_named else root) and readings[0]["images"] == 80
    assert source.get("heldout") == ({"folder": str(root / heldout)} if is_named else None)


@pytest.mark.parametrize("split, count, is_flat", [("test", 10, True), ("val", 4, False)])
def test_a_split_without_classes_or_with_few_images_is_not_used(tmp_path, split, count, is_flat):
    train = class_folder(tmp_path / "d" / "train", count=120)
    (flat if is_flat else class_folder)(tmp_path / "d" / split, count=count)
    readings, shown = accepted(tmp_path, tmp_path / "d")
    assert readings[0]["data"]["source"] == {"name": "image_folder", "folder": str(train)}
    assert f"the folder {split} is not used" in shown


ODD_CLASSES = dict.fromkeys(("test", "Val2017", "train_masks"), "a split") | {"bird-labels": "annotations", "bird": ""}


@pytest.mark.parametrize("name, what", ODD_CLASSES.items())
def test_a_class_that_may_be_none_is_odd_and_submit_says_the_classes(tmp_path, name, what):
    class_folder(tmp_path / "d", ("cat", "dog", name), count=80)
    readings, shown = accepted(tmp_path, tmp_path / "d")
    assert (f"odd       the folder {name} has the name of {what}, and is taken for a class" in shown) == bool(what)
    done = hpcddm("submit", tmp_path / "reading-0.yaml", "--site", "embedded", "--dry-run", "--run-dir", tmp_path / "r")
    assert f"classes in train   3 classes: {', '.join(readings[0]['class_names'])}\n" in done.output


CAPTIONS = ["annotations/captions_train2017.json", "captions.txt", "Flickr8k.token.txt", "results_20130124.token"]


@pytest.mark.parametrize("name", CAPTIONS)
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
    assert sources(tmp_path, tmp_path / "a")[0]["folder"] == str(tmp_path / "a" / "b")
    _, shown = accepted(tmp_path, tmp_path / "a" / "b" / "train")
    assert f"looks like one split of {tmp_path}/a/b" in shown and f"next: hpcddm data {tmp_path}/a/b\n" in shown


def test_tiny_imagenet_is_read_as_it_unpacks(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for synset in ("n01443537", "n01629819"):
        class_folder(root / "train" / synset, ("images",), count=60)
        (root / "train" / synset / f"{synset}_boxes.txt").write_text("0.JPEG\t0\t0\t9\t9\n")
    for split in ("val", "test"):
        class_folder(root / split, ("images",), count=30)
    readings, shown = accepted(tmp_path, root)
    assert readings[0]["data"]["source"]["folder"] == str(root / "train")
    assert "classes   2: n01443537, n01629819" in shown


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
        text = f"red thing {number}\na second line\n" if number % 3 else f"thing {number}"
        (root / f"{number:03d}.txt").write_text(text)
    readings, shown = accepted(tmp_path, root)
    assert [one["condition"] for one in readings] == ["captions"]
    assert readings[0]["data"]["source"]["caption_item"] == 0 and "several lines" in shown
    assert readings[0]["example"].startswith("thing ")


def test_classes_and_a_table_of_captions_are_two_readings(tmp_path):
    root = class_folder(tmp_path / "d", count=120)
    names = [f"{path.parent.name}/{path.name}" for path in sorted(root.rglob("*.png"))]
    (root / "metadata.csv").write_text("file_name,text\n" + "".join(f"{name},a {name[:3]}\n" for name in names))
    readings, shown = accepted(tmp_path, root)
    assert [one["condition"] for one in readings] == ["classes", "captions"]
    assert "reading 1 of 2" in shown and "reading 2 of 2" in shown and "metadata.csv, column text" in shown
    assert "condition" not in readings[0]["data"]


def test_two_columns_and_files_are_readings_of_their_own(tmp_path):
    root = flat(tmp_path / "d")
    rows = "".join(f"{number:03d}.png,short,long text\n" for number in range(120))
    (root / "metadata.csv").write_text("file_name,text,caption\n" + rows)
    for number in range(120):
        (root / f"{number:03d}.txt").write_text("beside")
    readings, _ = accepted(tmp_path, root)
    assert [one["data"]["source"]["caption_from"] for one in readings] == ["table:text", "table:caption", "txt"]
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
    assert readings[-1]["data"]["source"]["folder"] == str(tmp_path / "d")
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
    assert readings[0]["data"]["source"] == {"name": "imagenet", "folder": str(tmp_path / "d")}
    assert readings[0]["class_names"] == ilsvrc.NAMES and readings[0]["images"] == 60


def test_imagenet_without_labels_of_val_and_without_val(tmp_path):
    ilsvrc.write_images(tmp_path / "d", of_class=20)
    readings, shown = accepted(tmp_path, tmp_path / "d")
    assert readings[0]["data"]["source"]["heldout"] == {"share": 0.2}
    assert "val has no classes: put LOC_val_solution.csv" in shown
    shutil.rmtree(tmp_path / "d" / "val")
    assert sources(tmp_path, tmp_path / "d")[0] == {"name": "imagenet", "folder": str(tmp_path / "d")}


@pytest.mark.parametrize("count, share", [(22, 0.5), (60, 0.25), (80, None)])
def test_more_of_few_images_are_held_out(tmp_path, count, share):
    (source,) = sources(tmp_path, class_folder(tmp_path / "d", count=count))
    assert source.get("heldout") == (None if share is None else {"share": share})


def test_few_images_are_described_and_refused(tmp_path):
    ilsvrc.sorted_val(tmp_path / "d")
    values, shown = said(tmp_path / "d", 1)
    assert values["readings"][0]["class_names"] == ilsvrc.NAMES and "ImageNet (ILSVRC 2012)" in shown
    assert "val has fewer than 20 images" in shown and "evaluate.images: 20 samples" in shown


@pytest.mark.parametrize("kind, captions", [("saved", 2), ("hub", 2), ("small_groups", 2), ("pandas", 1)])
def test_data_sets_of_hugging_face(tmp_path, kind, captions):
    readings, _ = accepted(tmp_path, HUGGINGFACE / kind)
    assert {one["data"]["source"]["name"] for one in readings} == {"huggingface"}
    assert [one["condition"] for one in readings] == ["classes"] + ["captions"] * captions
    first = readings[0]
    assert (first["images"], first["is_exact"], first["widths"]) == (54, True, [24, 24])
    assert first["class_names"] == (["0", "1", "2"] if kind == "pandas" else ["face", "animal", "thing"])
    assert first["data"]["num_classes"] == 3
    if captions == 2:
        told = {"name": "huggingface", "folder": str(HUGGINGFACE / kind), "caption": "captions", "caption_item": 0}
        assert readings[2]["data"]["source"] == told


def parquet(path, count, **columns):
    """Write a table of pictures with further columns; return its folder."""
    values = {name: [value(number) for number in range(count)] for name, value in columns.items()}
    images = [{"bytes": encoded(number), "path": None} for number in range(count)]
    return write_table(path, {"image": images} | values)


def write_table(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path.parent


def test_one_split_of_parquet_holds_a_share_out(tmp_path):
    root = parquet(tmp_path / "d" / "train.parquet", 150, label=lambda number: ["low", "high"][number % 2])
    readings, _ = accepted(tmp_path, root)
    assert readings[0]["data"]["source"] == {"name": "huggingface", "folder": str(root)}
    assert readings[0]["class_names"] == ["high", "low"]


NO_CLASSES = [(lambda number: number / 7, "has the type double"), (lambda number: number % 3 - 1, "has class -1")]


@pytest.mark.parametrize("label, why", NO_CLASSES)
def test_a_label_that_is_no_class_is_left_out(tmp_path, label, why):
    readings, shown = accepted(tmp_path, parquet(tmp_path / "d" / "train.parquet", 150, label=label))
    assert readings[0]["data"]["source"]["label"] is None and why in shown


def test_a_test_split_without_classes_holds_a_share_out(tmp_path):
    parquet(tmp_path / "d" / "train.parquet", 150, label=lambda number: number % 3)
    readings, _ = accepted(tmp_path, parquet(tmp_path / "d" / "test.parquet", 50, label=lambda number: -1))
    assert readings[0]["data"]["source"]["heldout"] == {"share": 0.2} and readings[0]["images"] == 150


def test_two_data_sets_in_folders_are_readings_of_their_own(tmp_path):
    for name in ("en", "fr"):
        parquet(tmp_path / "d" / name / "train.parquet", 150)
    readings, _ = accepted(tmp_path, tmp_path / "d")
    files = {one["data"]["source"]["files"]: one["images"] for one in readings}
    assert files == {"en/**/*.parquet": 150, "fr/**/*.parquet": 150, "**/*.parquet": 300}


def test_parts_that_are_missing_and_addresses(tmp_path):
    root = parquet(tmp_path / "d" / "train-00000-of-00002.parquet", 150)
    assert "1 of 2 files of the split train are here" in said(root, 1)[1]
    root = write_table(tmp_path / "e" / "train.parquet", {"url": ["http://a/b.jpg"], "text": ["a"]})
    assert "img2dataset" in said(root, 1)[1]
    (root / "train.parquet").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert "git lfs pull" in said(root, 1)[1]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = hpcddm("data", HUGGINGFACE / "hub")
    assert done.exit_code == 1 and "pip install pyarrow" in done.stderr


def test_tars_of_img2dataset(tmp_path):
    ((one,), shown) = accepted(tmp_path, IMG2DATASET)
    assert (one["data"]["source"]["name"], one["condition"], one["images"]) == ("webdataset", "captions", 100)
    assert one["example"] and "not as huggingface" in shown


def samples(first, count, ends=("png",), **values):
    members = []
    for number in range(first, first + count):
        members += [(f"{number:04d}.{end}", encoded(number)) for end in ends]
        members += [(f"{number:04d}.{end}", value(number).encode()) for end, value in values.items()]
    return members


def test_tars_with_classes_and_held_out_ones(tmp_path):
    for first, split in ((0, "train"), (80, "val")):
        write_tar(tmp_path / "d" / split / "0.tar", samples(first, 80, cls=lambda number: str(number % 2)))
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert readings[0]["data"]["source"]["heldout"] == {"tars": "val/**/*.tar"}
    assert readings[0]["data"]["num_classes"] == 2


def test_tars_with_captions_in_json_and_the_same_keys(tmp_path):
    for number in range(2):
        described = samples(0, 60, json=lambda key: json.dumps({"caption": f"thing {key}"}))
        write_tar(tmp_path / "d" / f"{number}.tar", described)
    readings, _ = accepted(tmp_path, tmp_path / "d")
    source = readings[0]["data"]["source"]
    assert (source["caption"], source["prefix_keys"]) == ("json:caption", True)
    assert readings[0]["example"] == "thing 0"


def test_tars_with_two_images_of_a_sample_are_two_readings(tmp_path):
    write_tar(tmp_path / "d" / "0.tar", samples(0, 120, ends=("left.png", "right.png")))
    assert [one["image"] for one in sources(tmp_path, tmp_path / "d")] == [["left.png"], ["right.png"]]


def test_a_tar_of_tars_and_compressed_tars(tmp_path):
    inner = write_tar(tmp_path / "n01440764.tar", samples(0, 2))
    write_tar(tmp_path / "d" / "all.tar", [("n01440764.tar", inner.read_bytes())])
    assert "no samples with an image" in said(tmp_path / "d", 1)[1]
    (tmp_path / "e").mkdir()
    tarfile.open(tmp_path / "e" / "y.tar.gz", "w:gz").close()
    assert "y.tar.gz is compressed" in said(tmp_path / "e", 1)[1]


def test_files_of_mnist(tmp_path):
    raw = write_source(tmp_path / "d" / "FashionMNIST" / "raw")
    readings, _ = accepted(tmp_path, tmp_path / "d")
    assert readings[0]["data"]["source"] == {"name": "idx", "folder": str(raw)}
    assert (readings[0]["images"], readings[0]["class_names"]) == (136, ["0", "1", "2", "3"])
    assert readings[0]["data"]["channels"] == 1


def test_arrays(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (200, 3, 16, 16)).astype("uint8")
    (tmp_path / "d").mkdir()
    np.savez(tmp_path / "d" / "all.npz", x_train=pixels, y_train=np.arange(200) % 2, x_test=pixels[:50])
    readings, shown = accepted(tmp_path, tmp_path / "d")
    expected = {"images": "x_train", "labels": "y_train", "channels_first": True}
    assert readings[0]["data"]["source"] == {"name": "arrays", "file": str(tmp_path / "d" / "all.npz"), **expected}
    assert "x_test" in shown
    with h5py.File(tmp_path / "e.h5", "w") as file:
        file["images"] = pixels.transpose(0, 2, 3, 1)
        file["texts"] = [f"thing {number}" for number in range(200)]
    readings, _ = accepted(tmp_path, tmp_path / "e.h5")
    assert readings[0]["data"]["source"]["captions"] == "texts" and readings[0]["example"] == "thing 0"
    np.savez(tmp_path / "f.npz", images=pixels.astype("float32"))
    assert "float32" in said(tmp_path / "f.npz", 1)[1]


def test_one_file_in_place_of_a_folder(tmp_path):
    assert sources(tmp_path, write_tar(tmp_path / "0.tar", samples(0, 120)))[0]["tars"] == "0.tar"
    parquet(tmp_path / "train.parquet", 150)
    assert sources(tmp_path, tmp_path / "train.parquet")[0]["files"] == "train.parquet"
    for name, word in (("a.zip", "unpack"), ("a.png", "folder"), ("a.tar.gz", "compressed")):
        (tmp_path / name).write_bytes(encoded(1) if name == "a.png" else b"x")
        assert word in said(tmp_path / name, 1)[1]


def test_tars_among_folders_of_pictures_are_two_readings(tmp_path):
    class_folder(tmp_path / "d", count=120)
    write_tar(tmp_path / "d" / "0.tar", samples(0, 120))
    assert {one["name"] for one in sources(tmp_path, tmp_path / "d")} == {"image_folder", "webdataset"}


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
    root = class_folder(tmp_path / "shut" / "d", count=120)
    said(root)
    for shut, asked in ((root / "cat", root), (root / "cat", root / "cat"), (tmp_path / "shut", root)):
        with closed(shut, tmp_path):
            done = hpcddm("data", asked)
        unread = root / "cat" if shut == root / "cat" else root
        assert done.exit_code == 1 and f"{unread}: cannot be read" in done.output
        assert asked != unread or "(Permission denied)" in done.output


OPENED: list[str] = []
sys.addaudithook(lambda event, values: OPENED.append(str(values[0])) if event == "open" else None)


def many_files(root, count, end, content=b""):
    """Write one file, and give it many names."""
    root.mkdir()
    first = root / f"{0:07d}{end}"
    first.write_bytes(content)
    for number in range(1, count):
        os.link(first, root / f"{number:07d}{end}")
    return root


@pytest.mark.parametrize("end, content", [(".jpg", b""), ("", b""), (".txt", b""), (".png", encoded(1))])
def test_of_many_files_few_are_opened_and_good_ones_are_counted_by_name(tmp_path, end, content):
    root = many_files(tmp_path / "d", 5_000, end, content)
    OPENED.clear()
    done = hpcddm("data", root, "--json")
    opened = [path for path in OPENED if path.startswith(str(root))]
    values = json.loads(done.stdout)
    assert done.exit_code == (end != ".png") and values["files"] == 5_000 and len(opened) <= 300
    if end == ".jpg":
        assert "none of 200 images that were opened can be used" in values["readings"][0]["error"]
    if end == ".png":
        assert values["readings"][0]["images"] == 5_000 and values["readings"][0]["yaml"]


def test_counting_stops_at_a_limit_and_says_so(tmp_path, monkeypatch):
    root = class_folder(tmp_path / "d", count=120)
    monkeypatch.setattr(survey, "MAX_FILES", 100)
    values, shown = said(root)
    assert not values["is_whole"] and "more than 100 files" in shown and "counting stopped there" in shown


OWN = '''"""Strips of film: one folder with reels."""

from hpcddm.config.schema import PathSetting
from hpcddm.config.sources import SourceSettings
from hpcddm.sources.folders.proposal import SourceProposal, read_pictures
from hpcddm.data.image_decoding import read_image
from hpcddm.data.tars.record import Record
from hpcddm.sources.base import Source, Split


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
    (tmp_path / "own" / "sources").mkdir(parents=True)
    (tmp_path / "own" / "sources" / "film.py").write_text(OWN)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.reel").write_bytes(encoded(1))
    code = "from hpcddm.cli import main; import sys; main(sys.argv[1:])"
    done = python(code, "data", tmp_path / "d", HPCDDM_VARIANTS=str(tmp_path / "own"))
    assert "reels (source film)" in done.stdout, done.stderr
