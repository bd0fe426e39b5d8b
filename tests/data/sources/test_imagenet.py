"""ILSVRC as it unpacks: the same classes, names, keys and labels in every layout, and what is wrong in one line."""

import io
import shutil

import numpy as np
import pytest
from PIL import Image

from hpcddm.data.image_decoding import to_pixels
from hpcddm.data.sources.imagenet_files import distinct_names
from hpcddm.errors import UserError
from tests.data.oddities import encoded
from tests.data.sources import ilsvrc
from tests.data.sources.opening import records_of, source, split_of

CLASSES = [
    ("n01440764", "tench"),
    ("n01443537", "goldfish"),
    ("n01484850", "great white shark"),
    ("n01491361", "tiger shark"),
    ("n01494475", "hammerhead"),
    ("n01496331", "electric ray"),
    ("n01498041", "stingray"),
    ("n01514668", "cock"),
    ("n01514859", "hen"),
    ("n01518878", "ostrich"),
]
"""The first ten classes of every network that is trained on ImageNet-1k."""
EVERY_LAYOUT = pytest.mark.parametrize("layout", ilsvrc.LAYOUTS)
GROUND_TRUTH = f"{ilsvrc.DEVKIT}/ILSVRC2012_validation_ground_truth.txt"


def opened(root, split="heldout", **keys):
    return split_of("imagenet", split, folder=str(root), **keys)


def keys_of(records):
    return [records.key(number) for number in range(len(records))]


@EVERY_LAYOUT
def test_classes_are_the_sorted_synsets_with_readable_names_in_every_layout(tmp_path, layout):
    layout(tmp_path)
    train, heldout = opened(tmp_path, "train"), opened(tmp_path)
    assert train.class_names == heldout.class_names == [name for _, name in CLASSES]
    for label, (synset, _) in enumerate(CLASSES):
        expected = [f"train-{synset}-{synset}_10026_JPEG", f"train-{synset}-{synset}_10027_JPEG"]
        assert keys_of(train)[2 * label : 2 * label + 2] == expected
    assert train.labels.tolist() == [label for label in range(10) for _ in range(2)]


@EVERY_LAYOUT
def test_validation_images_have_one_key_one_number_and_one_class_in_every_layout(tmp_path, layout):
    layout(tmp_path)
    records = opened(tmp_path)
    assert keys_of(records) == [f"heldout-ILSVRC2012_val_{number:08d}_JPEG" for number in range(1, 11)]
    assert records.labels.tolist() == [9, 0, 7, 3, 8, 1, 6, 2, 5, 4]
    for number in range(10):
        expected = Image.open(io.BytesIO(encoded(101 + number, "JPEG"))).convert("RGB")
        record = records[number]
        assert (record.key, record.label) == (records.key(number), records.labels[number])
        assert np.array_equal(np.asarray(to_pixels(record.image, 3)), np.asarray(expected))
        assert (records.root / records.names[number]).read_bytes() == encoded(101 + number, "JPEG")


def test_kaggle_s_layout_is_found_from_its_top_and_from_the_folder_of_the_images(tmp_path):
    ilsvrc.kaggle(tmp_path)
    above, inside = opened(tmp_path), opened(tmp_path / "ILSVRC" / "Data" / "CLS-LOC")
    assert above.class_names == inside.class_names and above.labels.tolist() == inside.labels.tolist()
    beside = {(item.name, item.reason) for item in opened(tmp_path, "train").passed_over}
    assert beside == {
        ("test/", "folders beside the folders of the splits"),
        ("Annotations/", "folders beside the folders of the splits"),
        ("LOC_sample_submission.csv", "files .csv"),
        ("LOC_train_solution.csv", "files .csv"),
    }
    assert above.passed_over == []


def test_the_folder_may_be_the_top_of_a_relative_path(tmp_path, monkeypatch):
    ilsvrc.kaggle(tmp_path / "imagenet")
    ilsvrc.sorted_val(tmp_path / "sorted")
    monkeypatch.chdir(tmp_path)
    assert len(opened("imagenet", "train").passed_over) == 4 and opened("sorted", "train").passed_over == []
    monkeypatch.chdir(tmp_path / "sorted")
    assert opened(".", "train").passed_over == [] and opened(".").class_names == ilsvrc.NAMES


@pytest.mark.parametrize("layout", [ilsvrc.solution, ilsvrc.devkit, ilsvrc.sorted_with_all])
def test_without_oddities_nothing_is_passed_over(tmp_path, layout):
    layout(tmp_path)
    assert [*opened(tmp_path, "train").passed_over, *opened(tmp_path).passed_over] == []


def test_without_a_file_of_names_classes_are_called_as_their_synsets(tmp_path):
    ilsvrc.write_images(tmp_path, is_flat=False)
    assert opened(tmp_path).class_names == list(ilsvrc.WORDS)


def test_a_class_without_a_name_is_called_as_its_synset(tmp_path):
    ilsvrc.sorted_val(tmp_path)
    path = tmp_path / "LOC_synset_mapping.txt"
    path.write_text(path.read_text().replace("n01514859 hen\n", ""))
    assert opened(tmp_path).class_names[7:] == ["cock", "n01514859", "ostrich"]
    ilsvrc.write_words(tmp_path)
    assert opened(tmp_path).class_names == ilsvrc.NAMES


@pytest.mark.parametrize(
    "words, names",
    [
        (["crane", "crane"], ["crane (n00000000)", "crane (n00000001)"]),
        (["maillot", "maillot, tank suit"], ["maillot", "maillot, tank suit"]),
        (["Cardigan, Cardigan Welsh corgi", "cardigan"], ["Cardigan, Cardigan Welsh corgi", "cardigan"]),
        (["a, b", "a, b, c", "a"], ["a, b", "a, b, c", "a"]),
        (["screen, CRT screen", "window screen", "missile", "projectile, missile"], None),
        ([",", "a"], ["n00000000", "a"]),
    ],
)
def test_names_are_as_short_as_they_can_be_and_distinct(words, names):
    short = distinct_names({f"n{number:08d}": text for number, text in enumerate(words)})
    assert short == (names or [text.split(",")[0] for text in words])


def test_keys_stay_when_images_are_added(tmp_path):
    ilsvrc.solution(tmp_path)
    train, heldout = (keys_of(opened(tmp_path, split)) for split in ("train", "heldout"))
    (tmp_path / "train" / "n01440764" / "n01440764_00001.JPEG").write_bytes(encoded(7, "JPEG"))
    (tmp_path / "val" / "ILSVRC2012_val_00000000.JPEG").write_bytes(encoded(7, "JPEG"))
    with open(tmp_path / "LOC_val_solution.csv", "a") as file:
        file.write("ILSVRC2012_val_00000000,n01518878 1 2 3 4\n")
    assert set(train) < set(keys_of(opened(tmp_path, "train"))) and set(heldout) < set(keys_of(opened(tmp_path)))


def odd_files():
    """A PNG called JPEG, as n02105855_2933.JPEG is, and JPEG files with the inks of print, as 22 of ImageNet are."""
    pixels = np.random.default_rng(0).integers(0, 255, (17, 13, 4)).astype("uint8")
    for kind, mode in (("PNG", "RGBA"), ("JPEG", "CMYK"), ("JPEG", "L")):
        image = Image.frombytes("CMYK", (13, 17), pixels.tobytes()) if mode == "CMYK" else None
        image = image or Image.fromarray(pixels[..., :3]).convert(mode)
        file = io.BytesIO()
        image.save(file, kind)
        yield file.getvalue()


def test_odd_files_have_the_pixels_that_pillow_gives(tmp_path):
    ilsvrc.solution(tmp_path)
    for number, content in enumerate(odd_files()):
        (tmp_path / "train" / "n01440764" / f"n01440764_{number}.JPEG").write_bytes(content)
    records = {record.key: record for record in records_of("imagenet", folder=str(tmp_path))}
    for number, content in enumerate(odd_files()):
        expected = Image.open(io.BytesIO(content)).convert("RGB")
        image = records[f"train-n01440764-n01440764_{number}_JPEG"].image
        assert np.array_equal(np.asarray(to_pixels(image, 3)), np.asarray(expected))


def edited(path, edit):
    """Replace a file's text."""
    path.write_text(edit(path.read_text()))


def lose_label(root):
    edited(root / "LOC_val_solution.csv", lambda text: text.replace("ILSVRC2012_val_00000003,", "other,"))


def other_label(root):
    edited(root / "LOC_val_solution.csv", lambda text: text.replace("00000003,n01514668", "00000003,n01440764"))


def unknown_label(root):
    shutil.rmtree(root / "train" / "n01514668")


@pytest.mark.parametrize(
    "layout, change, message",
    [
        (
            ilsvrc.solution,
            lose_label,
            "solution.csv: no class of ILSVRC2012_val_00000003.JPEG, 1 of 10 images lack one; add them",
        ),
        (ilsvrc.solution, other_label, "n01440764 1 2 0 4 n01514668 1 2 1 4.* does not have one synset"),
        (
            ilsvrc.solution,
            unknown_label,
            "ILSVRC2012_val_00000003.JPEG is n01514668, a class without training images; ",
        ),
        (ilsvrc.sorted_val, unknown_label, "val/n01514668: no such class with images in .*train .n01440764, "),
        (
            ilsvrc.solution,
            lambda root: edited(root / "LOC_val_solution.csv", lambda text: text.replace("ImageId", "image")),
            "LOC_val_solution.csv: no readable table .no column ImageId; there are: image, PredictionString",
        ),
        (
            ilsvrc.solution,
            lambda root: (root / "LOC_val_solution.csv").unlink(),
            "val: 10 images without classes; put LOC_val_solution.csv, or ILSVRC2012_validation_ground_truth.txt and",
        ),
        (
            ilsvrc.devkit,
            lambda root: edited(root / GROUND_TRUTH, lambda text: text + "449\n"),
            "ground_truth.txt: 11 lines for 10 images, or 50,000 in the whole data set",
        ),
        (
            ilsvrc.devkit,
            lambda root: edited(root / GROUND_TRUTH, lambda text: text.rstrip().rpartition("\n")[0]),
            "ground_truth.txt: 9 lines, but ILSVRC2012_val_00000010 needs line 10",
        ),
        (
            ilsvrc.devkit,
            lambda root: edited(root / GROUND_TRUTH, lambda text: text.replace("449", "1001")),
            "ground_truth.txt: line 2: '1001' is not an ILSVRC2012_ID of a class in .*meta.mat; bring both back",
        ),
        (
            ilsvrc.devkit,
            lambda root: edited(root / GROUND_TRUTH, lambda text: text.replace("449", "tench")),
            "ground_truth.txt: line 2: 'tench' is not an ILSVRC2012_ID",
        ),
        (
            ilsvrc.devkit,
            lambda root: edited(root / GROUND_TRUTH, lambda text: text.replace("449", "1" * 5000)),
            "ground_truth.txt: line 2: '111.* is not an ILSVRC2012_ID",
        ),
        (
            ilsvrc.devkit,
            lambda root: (root / ilsvrc.DEVKIT / "meta.mat").unlink(),
            "ground_truth.txt: its numbers need meta.mat, which the devkit has beside it",
        ),
        (
            ilsvrc.devkit,
            lambda root: (root / ilsvrc.DEVKIT / "meta.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200)),
            "meta.mat: not the devkit's list of synsets",
        ),
        (
            ilsvrc.sorted_val,
            lambda root: edited(root / "LOC_synset_mapping.txt", lambda text: text.replace("n01440764 ", "0 ")),
            "LOC_synset_mapping.txt: line 1: '0 tench, Tinca tinca' is not a synset and its words",
        ),
        (
            ilsvrc.sorted_val,
            lambda root: (root / "train" / "n01440764").rename(root / "train" / "tench"),
            "train/tench: not the folder of a synset, such as n01440764; move it elsewhere, or take .* image_folder",
        ),
        (ilsvrc.solution, lambda root: shutil.rmtree(root / "val"), "folder: .*val is not a folder; put .*share: 0.05"),
        (ilsvrc.solution, lambda root: shutil.rmtree(root / "train"), "train is not a folder; name the folder that"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(tmp_path, layout, change, message):
    layout(tmp_path)
    change(tmp_path)
    with pytest.raises(UserError, match=message) as raised:
        opened(tmp_path)
    assert "\n" not in str(raised.value)


def test_every_part_of_a_torn_meta_mat_is_one_line(tmp_path):
    ilsvrc.devkit(tmp_path)
    path = tmp_path / ilsvrc.DEVKIT / "meta.mat"
    whole = path.read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match="meta.mat: not the devkit's list of synsets"):
            opened(tmp_path)


@pytest.mark.parametrize(
    "layout, other",
    [
        (
            ilsvrc.devkit,
            "ILSVRC2012_val_00000002.JPEG is n01440764 in .*ground_truth.txt, but n01514668 in .*solution.csv",
        ),
        (
            ilsvrc.sorted_val,
            "n01440764/ILSVRC2012_val_00000002.JPEG is n01514668 in .*csv, but n01440764 in .*n01440764;",
        ),
    ],
)
def test_two_that_disagree_are_named_with_one_image(tmp_path, layout, other):
    layout(tmp_path)
    ilsvrc.write_solution(tmp_path)
    opened(tmp_path)
    edited(tmp_path / "LOC_val_solution.csv", lambda text: text.replace("00000002,n01440764", "00000002,n01514668"))
    with pytest.raises(UserError, match=f"{other}.*remove the file that is wrong"):
        opened(tmp_path)


@pytest.mark.parametrize("layout", [ilsvrc.solution, ilsvrc.sorted_with_all])
def test_rows_without_an_image_are_counted(tmp_path, layout):
    layout(tmp_path)
    with open(tmp_path / "LOC_val_solution.csv", "a") as file:
        file.write("ILSVRC2012_val_00000077,n02119789 1 2 3 4\n")
    reason = "rows of LOC_val_solution.csv without an image"
    assert opened(tmp_path).passed_over == [("ILSVRC2012_val_00000077", reason, False)]


def test_the_whole_ground_truth_labels_a_part_of_the_images_by_their_numbers(tmp_path):
    ilsvrc.devkit(tmp_path)
    edited(tmp_path / GROUND_TRUTH, lambda text: text + "385\n" * (50_000 - 10))
    (tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG").rename(tmp_path / "val" / "ILSVRC2012_val_00050000.JPEG")
    (tmp_path / "val" / "ILSVRC2012_val_00000002.JPEG").unlink()
    records = opened(tmp_path)
    assert records.labels.tolist() == [7, 3, 8, 1, 6, 2, 5, 4, 9] and len(records.passed_over) == 50_000 - 9
    reason = "lines of ILSVRC2012_validation_ground_truth.txt without an image"
    assert records.passed_over[:2] == [(f"ILSVRC2012_val_{number:08d}", reason, False) for number in (1, 2)]


def test_images_beside_sorted_ones_are_labelled_by_a_file_or_broken(tmp_path):
    ilsvrc.sorted_val(tmp_path)
    shutil.move(tmp_path / "val" / "n01440764" / "ILSVRC2012_val_00000002.JPEG", tmp_path / "val")
    records = opened(tmp_path)
    assert len(records) == 9
    assert [item for item in records.passed_over if item.is_broken] == [
        ("ILSVRC2012_val_00000002.JPEG", "pictures beside the folders of classes", True)
    ]
    ilsvrc.write_solution(tmp_path)
    assert opened(tmp_path).labels.tolist() == [9, 0, 7, 3, 8, 1, 6, 2, 5, 4]


def test_a_share_of_the_training_images_is_held_out_without_val(tmp_path):
    ilsvrc.sorted_val(tmp_path)
    shutil.rmtree(tmp_path / "val")
    splits = {split: opened(tmp_path, split, heldout={"share": 0.4}) for split in ("train", "heldout")}
    keys = {split: set(keys_of(records)) for split, records in splits.items()}
    assert keys["train"].isdisjoint(keys["heldout"]) and len(keys["train"] | keys["heldout"]) == 20
    assert "n01440764-n01440764_10026_JPEG" in keys["train"] | keys["heldout"]
    for records in splits.values():
        assert [records.names[place].split("/")[0] for place in range(len(records))] == [
            ilsvrc.synset(label) for label in records.labels
        ]


def test_the_validation_images_may_be_elsewhere(tmp_path):
    ilsvrc.solution(tmp_path / "a")
    expected = keys_of(opened(tmp_path / "a"))
    (tmp_path / "a" / "val").rename(tmp_path / "b")
    records = opened(tmp_path / "a", heldout={"folder": str(tmp_path / "b")})
    assert keys_of(records) == expected and records.labels.tolist() == [9, 0, 7, 3, 8, 1, 6, 2, 5, 4]


def test_a_caption_may_have_the_name_of_the_class(tmp_path):
    ilsvrc.solution(tmp_path)
    records = opened(tmp_path, caption="a photo of a {class}")
    assert records.has_captions and records[0].caption == "a photo of a ostrich"


def test_changed_images_classes_and_names_are_other_content(tmp_path):
    ilsvrc.solution(tmp_path)
    table = tmp_path / "LOC_val_solution.csv"

    def content():
        return source("imagenet", folder=str(tmp_path)).content_hash()

    contents = [content()]
    edited(tmp_path / "words.txt", lambda text: text.replace("\thammerhead", "\tmallet"))
    contents.append(content())
    edited(table, lambda text: text.replace("n01514668", "n01440764"))
    contents.append(content())
    (tmp_path / "val" / "ILSVRC2012_val_00000002.JPEG").write_bytes(encoded(7))
    contents.append(content())
    assert len(set(contents)) == 4 and content() == contents[-1]
