"""ILSVRC as it unpacks: the same classes, names, keys and labels in every layout, and what is wrong in one line."""

import io
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from hpcddm.data.image_decoding import to_pixels
from hpcddm.sources.imagenet_files import distinct_names
from tests.data.oddities import encoded
from tests.data.refusals import assert_refused
from tests.sources import ilsvrc
from tests.sources.ilsvrc import devkit, solution, sorted_val
from tests.sources.opening import source, split_of

SOLUTION, MAPPING = "LOC_val_solution.csv", "LOC_synset_mapping.txt"
TRUTH = f"{ilsvrc.DEVKIT}/ILSVRC2012_validation_ground_truth.txt"


def opened(root, split="heldout", **keys):
    return split_of("imagenet", split, folder=str(root), **keys)


def keys_of(records):
    return [records.key(number) for number in range(len(records))]


@pytest.mark.parametrize("layout", ilsvrc.LAYOUTS)
def test_classes_names_keys_and_images_are_the_same_in_every_layout(tmp_path, layout):
    layout(tmp_path)
    train, records = opened(tmp_path, "train"), opened(tmp_path)
    # Classes are numbered in the order of the synsets, as in every network that is trained on ImageNet-1k.
    assert train.class_names == records.class_names == ilsvrc.NAMES
    assert keys_of(train) == [f"train-{name}-{name}_1002{end}_JPEG" for name in ilsvrc.WORDS for end in (6, 7)]
    assert train.labels.tolist() == [label for label in range(10) for _ in range(2)]
    assert keys_of(records) == [f"heldout-ILSVRC2012_val_{number:08d}_JPEG" for number in range(1, 11)]
    assert records.labels.tolist() == [9, 0, 7, 3, 8, 1, 6, 2, 5, 4]
    for number in range(10):
        content, record = encoded(101 + number, "JPEG"), records[number]
        assert (record.key, record.label) == (records.key(number), records.labels[number])
        assert np.array_equal(np.asarray(to_pixels(record.image, 3)), np.asarray(Image.open(io.BytesIO(content))))
        assert (records.root / records.names[number]).read_bytes() == content
    assert layout is ilsvrc.kaggle or train.passed_over == records.passed_over == []


def test_kaggle_s_layout_is_found_from_its_top_and_from_the_folder_of_the_images(tmp_path):
    ilsvrc.kaggle(tmp_path)
    above, inside = opened(tmp_path), opened(tmp_path / "ILSVRC" / "Data" / "CLS-LOC")
    assert above.class_names == inside.class_names and above.labels.tolist() == inside.labels.tolist()
    beside = {(item.name, item.reason) for item in opened(tmp_path, "train").passed_over}
    expected = {(name, "folders beside the folders of the splits") for name in ("test/", "Annotations/")}
    assert beside == expected | {(f"LOC_{name}.csv", "files .csv") for name in ("sample_submission", "train_solution")}
    assert above.passed_over == []


def test_the_folder_may_be_the_top_of_a_relative_path(tmp_path, monkeypatch):
    ilsvrc.kaggle(tmp_path / "imagenet")
    sorted_val(tmp_path / "sorted")
    monkeypatch.chdir(tmp_path)
    assert len(opened("imagenet", "train").passed_over) == 4 and opened("sorted", "train").passed_over == []
    monkeypatch.chdir(tmp_path / "sorted")
    assert opened(".", "train").passed_over == [] and opened(".").class_names == ilsvrc.NAMES


def test_without_a_file_of_names_classes_are_called_as_their_synsets(tmp_path):
    ilsvrc.write_images(tmp_path, is_flat=False)
    assert opened(tmp_path).class_names == list(ilsvrc.WORDS)


def test_a_class_without_a_name_is_called_as_its_synset(tmp_path):
    sorted_val(tmp_path)
    changed(MAPPING, "n01514859 hen\n", "")(tmp_path)
    assert opened(tmp_path).class_names[7:] == ["cock", "n01514859", "ostrich"]
    ilsvrc.write_words(tmp_path)
    assert opened(tmp_path).class_names == ilsvrc.NAMES


SHORT_NAMES = [
    (["crane", "crane"], ["crane (n00000000)", "crane (n00000001)"]),
    (["maillot", "maillot, tank suit"], ["maillot", "maillot, tank suit"]),
    (["Cardigan, Cardigan Welsh corgi", "cardigan"], ["Cardigan, Cardigan Welsh corgi", "cardigan"]),
    (["a, b", "a, b, c", "a"], ["a, b", "a, b, c", "a"]),
    (["screen, CRT screen", "window screen", "missile", "projectile, missile"], None),
    ([",", "a"], ["n00000000", "a"]),
]


@pytest.mark.parametrize("words, names", SHORT_NAMES)
def test_names_are_as_short_as_they_can_be_and_distinct(words, names):
    short = distinct_names({f"n{number:08d}": text for number, text in enumerate(words)})
    assert short == (names or [text.split(",")[0] for text in words])


def test_keys_stay_when_images_are_added(tmp_path):
    solution(tmp_path)
    train, heldout = (keys_of(opened(tmp_path, split)) for split in ("train", "heldout"))
    (tmp_path / "train" / "n01440764" / "n01440764_00001.JPEG").write_bytes(encoded(7, "JPEG"))
    (tmp_path / "val" / "ILSVRC2012_val_00000000.JPEG").write_bytes(encoded(7, "JPEG"))
    with open(tmp_path / "LOC_val_solution.csv", "a") as file:
        file.write("ILSVRC2012_val_00000000,n01518878 1 2 3 4\n")
    assert set(train) < set(keys_of(opened(tmp_path, "train"))) and set(heldout) < set(keys_of(opened(tmp_path)))


def changed(file, old, new):
    """A change of a file's text, by a regular expression."""
    return lambda root: (root / file).write_text(re.sub(old, new, (root / file).read_text()))


def without(name):
    return lambda root: shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()


def renamed(root):
    (root / "train" / "n01440764").rename(root / "train" / "tench")


WRONG = [
    (solution, changed(SOLUTION, "val_00000003,", ","), "csv: no class of .*03.JPEG, 1 of 10 .* lack one; add"),
    (solution, changed(SOLUTION, "03,n01514668", "03,n01440764"), "n01440764 1 .* n01514668 .* not have one synset"),
    (solution, changed(SOLUTION, "ImageId", "image"), "solution.csv: .*no column ImageId; there are: image, Pred"),
    (solution, without(SOLUTION), "val: 10 images without classes; put LOC_val_solution.csv, or .*truth.txt and"),
    (solution, without("train/n01514668"), "val_00000003.JPEG is n01514668, a class without training images; "),
    (sorted_val, without("train/n01514668"), "val/n01514668: no such class with images in .*train .n01440764, "),
    (devkit, changed(TRUTH, r"\Z", "449\n"), "truth.txt: 11 lines for 10 images, or 50,000 in the whole data set"),
    (devkit, changed(TRUTH, r"\d+\n\Z", ""), "truth.txt: 9 lines, but ILSVRC2012_val_00000010 needs line 10"),
    (devkit, changed(TRUTH, "449", "1001"), "truth.txt: line 2: '1001' is not .* class in .*meta.mat; bring both"),
    (devkit, changed(TRUTH, "449", "tench"), "truth.txt: line 2: 'tench' is not an ILSVRC2012_ID"),
    (devkit, changed(TRUTH, "449", "1" * 5000), "truth.txt: line 2: '111.* is not an ILSVRC2012_ID"),
    (devkit, without(f"{ilsvrc.DEVKIT}/meta.mat"), "truth.txt: its numbers need meta.mat, which the devkit has beside"),
    (sorted_val, changed(MAPPING, "n01440764 ", "0 "), "mapping.txt: line 1: '0 tench, .*' is not a synset and its"),
    (sorted_val, renamed, "train/tench: not the folder of a synset, such as n01440764; move it .* image_folder"),
    (solution, without("val"), "folder: .*val is not a folder; put .*share: 0.05"),
    (solution, without("train"), "train is not a folder; name the folder that"),
]


@pytest.mark.parametrize("layout, change, message", WRONG)
def test_what_is_wrong_is_named_in_one_line(tmp_path, layout, change, message):
    layout(tmp_path)
    change(tmp_path)
    assert_refused(message, opened, tmp_path)


def test_every_part_of_a_torn_meta_mat_is_one_line(tmp_path):
    devkit(tmp_path)
    path = tmp_path / ilsvrc.DEVKIT / "meta.mat"
    whole = path.read_bytes()
    for content in (b"MATLAB 5.0 MAT-file" + bytes(200), *(whole[:size] for size in range(0, len(whole), 37))):
        path.write_bytes(content)
        assert_refused("meta.mat: not the devkit's list of synsets", opened, tmp_path)


DISAGREEING = [
    (devkit, "val_00000002.JPEG is n01440764 in .*ground_truth.txt, but n01514668 in .*solution.csv"),
    (sorted_val, "n01440764/.*val_00000002.JPEG is n01514668 in .*csv, but n01440764 in .*n01440764;"),
]


@pytest.mark.parametrize("layout, other", DISAGREEING)
def test_two_that_disagree_are_named_with_one_image(tmp_path, layout, other):
    layout(tmp_path)
    ilsvrc.write_solution(tmp_path)
    opened(tmp_path)
    changed(SOLUTION, "00000002,n01440764", "00000002,n01514668")(tmp_path)
    assert_refused(f"{other}.*remove the file that is wrong", opened, tmp_path)


@pytest.mark.parametrize("layout", [solution, ilsvrc.sorted_with_all])
def test_rows_without_an_image_are_counted(tmp_path, layout):
    layout(tmp_path)
    with open(tmp_path / "LOC_val_solution.csv", "a") as file:
        file.write("ILSVRC2012_val_00000077,n02119789 1 2 3 4\n")
    reason = "rows of LOC_val_solution.csv without an image"
    assert opened(tmp_path).passed_over == [("ILSVRC2012_val_00000077", reason, False)]


def test_the_whole_ground_truth_labels_a_part_of_the_images_by_their_numbers(tmp_path):
    devkit(tmp_path)
    changed(TRUTH, r"\Z", "385\n" * (50_000 - 10))(tmp_path)
    (tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG").rename(tmp_path / "val" / "ILSVRC2012_val_00050000.JPEG")
    (tmp_path / "val" / "ILSVRC2012_val_00000002.JPEG").unlink()
    records = opened(tmp_path)
    assert records.labels.tolist() == [7, 3, 8, 1, 6, 2, 5, 4, 9] and len(records.passed_over) == 50_000 - 9
    reason = "lines of ILSVRC2012_validation_ground_truth.txt without an image"
    assert records.passed_over[:2] == [(f"ILSVRC2012_val_{number:08d}", reason, False) for number in (1, 2)]


def test_images_beside_sorted_ones_are_labelled_by_a_file_or_broken(tmp_path):
    sorted_val(tmp_path)
    shutil.move(tmp_path / "val" / "n01440764" / "ILSVRC2012_val_00000002.JPEG", tmp_path / "val")
    records = opened(tmp_path)
    assert len(records) == 9
    beside = ("ILSVRC2012_val_00000002.JPEG", "pictures beside the folders of classes", True)
    assert [item for item in records.passed_over if item.is_broken] == [beside]
    ilsvrc.write_solution(tmp_path)
    assert opened(tmp_path).labels.tolist() == [9, 0, 7, 3, 8, 1, 6, 2, 5, 4]


def test_a_share_of_the_training_images_is_held_out_without_val(tmp_path):
    sorted_val(tmp_path)
    shutil.rmtree(tmp_path / "val")
    splits = {split: opened(tmp_path, split, heldout={"share": 0.4}) for split in ("train", "heldout")}
    keys = {split: set(keys_of(records)) for split, records in splits.items()}
    assert keys["train"].isdisjoint(keys["heldout"]) and len(keys["train"] | keys["heldout"]) == 20
    assert "n01440764-n01440764_10026_JPEG" in keys["train"] | keys["heldout"]
    for records in splits.values():
        assert [name.split("/")[0] for name in records.names] == [ilsvrc.synset(label) for label in records.labels]


def test_the_validation_images_may_be_elsewhere(tmp_path):
    solution(tmp_path / "a")
    expected = keys_of(opened(tmp_path / "a"))
    (tmp_path / "a" / "val").rename(tmp_path / "b")
    records = opened(tmp_path / "a", heldout={"folder": str(tmp_path / "b")})
    assert keys_of(records) == expected and records.labels.tolist() == [9, 0, 7, 3, 8, 1, 6, 2, 5, 4]


def test_a_caption_may_have_the_name_of_the_class(tmp_path):
    solution(tmp_path)
    records = opened(tmp_path, caption="a photo of a {class}")
    assert records.has_captions and records[0].caption == "a photo of a ostrich"


def test_changed_images_classes_and_names_are_other_content(tmp_path):
    solution(tmp_path)

    def content():
        return source("imagenet", folder=str(tmp_path)).content_hash()

    contents = [content()]
    for change in (
        changed("words.txt", "\thammerhead", "\tmallet"),
        changed(SOLUTION, "n01514668", "n01440764"),
        lambda root: (root / "val" / "ILSVRC2012_val_00000002.JPEG").write_bytes(encoded(7)),
    ):
        change(tmp_path)
        contents.append(content())
    assert len(set(contents)) == 4 and content() == contents[-1]
