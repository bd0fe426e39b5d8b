"""Names of classes in a file beside their folders."""

import pytest

from hpcddm.errors import UserError
from hpcddm.sources import class_file
from tests.data.oddities import class_folder
from tests.data.refusals import assert_refused
from tests.sources.opening import source, split_of

NAMES = {
    "cat Siamese cat\ndog\tpoodle, large\n": ["Siamese cat", "poodle, large"],
    "dog poodle\n\tcat  Siamese cat": ["Siamese cat", "poodle"],
    "Siamese cat\nPoodle\n\n": ["Siamese cat", "Poodle"],
    "\ufeffKatze\r\nHund\r\n": ["Katze", "Hund"],
    "cat\ndog\n": ["cat", "dog"],
    "cat dog\ndog cat\n": ["dog", "cat"],
}


def test_names_are_read_by_folder_or_in_alphabetical_order(tmp_path):
    for text, names in NAMES.items():
        (tmp_path / "classes.txt").write_text(text)
        assert class_file.read(tmp_path / "classes.txt", ["cat", "dog"]) == names
    # Of two folders that fit, the longer is the one.
    (tmp_path / "classes.txt").write_text("red fox Vulpes\nred Rot\n")
    assert class_file.read(tmp_path / "classes.txt", ["red", "red fox"]) == ["Rot", "Vulpes"]


REFUSED = [
    (b"Katze\n", "1 lines for 2 classes; write one name per line in alphabetical order of the folders, or"),
    (b"Katze\nHund\nMaus\n", "3 lines for 2 classes"),
    (b"", "1 lines for 2 classes"),
    (b"\nHund\n", "line 1 is empty"),
    (b"dog\ncat\n", "line 1 has dog, but folder 1 is cat"),
    (b"Katze\nKatze\n", "cat and dog are both called Katze; give every class its own name"),
    (b"cat pet\ndog pet\n", "cat and dog are both called pet"),
    (b"cat Katze\ncat Kater\n", "two lines begin with cat; remove one"),
    (b"cat Katze\n", "no line begins with dog, which is the folder of a class; add one"),
    (b"cat Katze\nmouse Maus\n", "'mouse Maus' does not begin with the folder of a class, as other lines do"),
    (b"caf\xe9\nHund\n", "names of classes cannot be read .*; mend or remove it"),
]


@pytest.mark.parametrize("content, message", REFUSED)
def test_a_file_that_does_not_name_every_class_is_refused_in_one_line(tmp_path, content, message):
    class_folder(tmp_path)
    (tmp_path / "classes.txt").write_bytes(content)
    assert_refused(f"classes.txt: .*{message}", split_of, "image_folder", folder=str(tmp_path), heldout={"share": 0.5})


@pytest.mark.parametrize("place", ["", "train"])
def test_both_splits_have_the_names_and_no_number_or_key_changes(tmp_path, place):
    for split, classes in (("train", ("cat", "dog", "eel")), ("val", ("cat", "eel"))):
        class_folder(tmp_path / split, classes)
    before = split_of("image_folder", "heldout", folder=str(tmp_path))
    content = source("image_folder", folder=str(tmp_path)).content_hash()
    (tmp_path / place / "classes.txt").write_text("Zebra cat\nDog\nAal\n")
    for split in ("train", "heldout"):
        records = split_of("image_folder", split, folder=str(tmp_path), caption="a {class}")
        assert records.class_names == ["Zebra cat", "Dog", "Aal"] and records.passed_over == []
    assert records.labels.tolist() == before.labels.tolist() == [0] * 4 + [2] * 4
    assert [record.caption for record in records] == ["a Zebra cat"] * 4 + ["a Aal"] * 4
    assert [records.key(number) for number in range(8)] == [before.key(number) for number in range(8)]
    assert source("image_folder", folder=str(tmp_path)).content_hash() != content
    other = tmp_path / ("train" if place == "" else "") / "classes.txt"
    other.write_text("Zebra cat\nDog\nAal\n")
    with pytest.raises(UserError, match="train/classes.txt and .*classes.txt both have the names of the classes"):
        split_of("image_folder", folder=str(tmp_path))


def test_of_images_without_classes_the_file_is_passed_over(tmp_path):
    folder = class_folder(tmp_path, ("alone",), 6) / "alone"
    (folder / "classes.txt").write_text("cat\n")
    records = split_of("image_folder", folder=str(folder), heldout={"share": 0.5})
    assert records.class_names == [] and records.passed_over == [("classes.txt", "files .txt", False)]
