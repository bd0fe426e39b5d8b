"""A folder of pictures with everything that other people have in theirs."""

import os
import shutil
import socket
import tempfile
from functools import cache
from pathlib import Path

import pytest

from hpcddm.config import variants
from hpcddm.sources import listing
from tests.data.oddities import HEIC, JPEG_XL, class_folder, encoded
from tests.data.refusals import assert_refused
from tests.sources.opening import source, split_of

JPEG = encoded(7, "JPEG")


@pytest.fixture
def folder(tmp_path):
    return class_folder(tmp_path / "data")


def opened(folder, share=1e-9):
    return split_of("image_folder", folder=str(folder), heldout={"share": share})


def keys_of(records):
    return [records.key(number) for number in range(len(records))]


CLEAN = [f"{name}-00{number}_png" for name in ("cat", "dog") for number in range(4)]


def test_pictures_are_known_by_their_content_whatever_their_names(folder):
    for name in ("x.jfif", "x.jpe", "y.JFIF", "z.heic", "without", "v1.2", "x.dat", "t.txt", "12"):
        (folder / "cat" / name).write_bytes(JPEG)
    records = opened(folder)
    expected = ["12", "t_txt", "v1_2", "without", "x_dat", "x_jfif", "x_jpe", "y_JFIF", "z_heic"]
    assert keys_of(records) == CLEAN[:4] + [f"cat-{name}" for name in expected] + CLEAN[4:]
    assert records.labels.tolist() == [0] * 13 + [1] * 4 and records.passed_over == []
    assert all(records[number].image.size == (9, 9) for number in range(len(records)))


def test_every_format_is_known_by_its_content(folder):
    kinds = [(kind, {}) for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "AVIF", "JPEG2000")]
    kinds += [("TIFF", {"big_tiff": True}), ("JPEG2000", {"no_jp2": True})]
    for number, (kind, options) in enumerate(kinds):
        (folder / "cat" / f"x{number}").write_bytes(encoded(1, kind, **options))
    records = {record.key: record for record in opened(folder)}
    sizes = {str(kind): records[f"cat-x{number}"].image.size for number, kind in enumerate(kinds)}
    assert sizes == {str(kind): (9, 9) for kind in kinds}


UNREAD = {
    "x.heic": (HEIC, "pictures in HEIC"),
    "x.jxl": (JPEG_XL, "pictures in JPEG XL"),
    "x": (b"\xff\x0a\xfa\x1f", "pictures in JPEG XL"),
    "x.psd": (b"8BPS\0\1", "pictures in Photoshop"),
    "x.svg": (b"<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'/>", "pictures in SVG"),
    "x.ppm": (b"P6\n9 9\n255\n", "pictures in PNM"),
    "x.cr2": (b"II*\0\x10\0\0\0CR\2\0", "pictures in raw form"),
    "x.nef": (encoded(1, "TIFF", tiffinfo={254: 1}), "pictures in raw form"),
    "x.dng": (b"MM\0*\0\0\0\x08\0\x20\0\xfe\0\x04\0\0\0\1\0\0\0\1", "pictures in raw form"),
    ".x.png": (JPEG, "hidden pictures"),
}
NO_PICTURES = {
    "x.txt": (b"BM is how a text may begin", "files .txt"),
    "000.txt": (b"a cat", "files .txt"),
    "README": (b"", "files without extension"),
    "x.md": (b"P1 is a way to begin", "files .md"),
    "._000.png": (b"\0\5\x16\7", "known junk"),
    ".hidden": (b"", "hidden files, or in hidden folders"),
    ".git/objects/ab/cd": (JPEG, "hidden files, or in hidden folders"),
    "@eaDir/000.png/SYNOPHOTO_THUMB_M.jpg": (JPEG, "known junk"),
    "__MACOSX/._000.png": (b"", "known junk"),
} | {name: (b"", "known junk") for name in ("Thumbs.db", "thumbs.DB", ".DS_Store", "desktop.ini")}


def test_pictures_that_are_not_read_count_as_broken(folder):
    for name, (content, _) in UNREAD.items():
        (folder / "cat" / name).write_bytes(content)
    records = opened(folder)
    expected = [(f"cat/{name}", reason, True) for name, (_, reason) in UNREAD.items()]
    assert keys_of(records) == CLEAN and sorted(records.passed_over) == sorted(expected)


def test_what_is_no_picture_is_counted_and_never_an_error(folder):
    for name, (content, _) in NO_PICTURES.items():
        for path in (folder / "cat" / name, folder / name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    records = opened(folder)
    assert keys_of(records) == CLEAN and records.class_names == ["cat", "dog"]
    expected = [(place + name, reason, False) for name, (_, reason) in NO_PICTURES.items() for place in ("", "cat/")]
    assert sorted(records.passed_over) == sorted(expected)


def test_a_folder_without_a_picture_is_named_and_no_class(folder):
    for name in ("bird", "empty", "zoo"):
        (folder / name).mkdir()
    (folder / "bird" / "notes.md").write_text("none yet")
    records = opened(folder)
    assert records.class_names == ["cat", "dog"] and keys_of(records) == CLEAN
    reason = "folders without a picture, which are not classes"
    expected = {(name, reason, False) for name in ("bird/", "empty/", "zoo/")}
    assert set(records.passed_over) == expected | {("bird/notes.md", "files .md", False)}


def test_pictures_beside_the_folders_of_classes_and_of_splits_are_broken(folder, tmp_path):
    (folder / "stray.png").write_bytes(JPEG)
    assert ("stray.png", "pictures beside the folders of classes", True) in opened(folder).passed_over
    shutil.copytree(folder, tmp_path / "both" / "train")
    shutil.copytree(folder, tmp_path / "both" / "val")
    (tmp_path / "both" / "test").mkdir()
    (tmp_path / "both" / "stray").write_bytes(JPEG)
    train, heldout = (split_of("image_folder", split, folder=str(tmp_path / "both")) for split in ("train", "heldout"))
    beside = "pictures beside the folders of classes"
    assert heldout.passed_over == [("stray.png", beside, True)]
    assert train.passed_over == [
        ("stray.png", beside, True),
        ("stray", "pictures beside the folders of the splits", True),
        ("test/", "folders beside the folders of the splits", False),
    ]


def test_links_that_lead_nowhere_are_named(folder):
    pictures = {"cat/zzz.png": "/not/there.png", "cat/self.png": "self.png"}
    for link, target in (pictures | {"cat/zzz": "/not/there", "bird": "/not/there", "self": "self"}).items():
        (folder / link).symlink_to(target)
    records = opened(folder)
    broken = {item.name: item.is_broken for item in records.passed_over}
    assert broken == dict.fromkeys(pictures, True) | dict.fromkeys(("cat/zzz", "bird", "self"), False)
    assert keys_of(records) == CLEAN and len(records.passed_over) == 5
    assert all(item.reason.startswith("links that lead nowhere (") for item in records.passed_over)
    assert source("image_folder", folder=str(folder), heldout={"share": 0.5}).content_hash()


def test_links_to_pictures_and_to_folders_are_followed_and_a_circle_is_refused(folder, tmp_path):
    (tmp_path / "blob").write_bytes(JPEG)
    (folder / "cat" / "zzz.jpg").symlink_to(tmp_path / "blob")
    (folder / "cow").symlink_to(class_folder(tmp_path / "elsewhere", ("cow",)) / "cow")
    records = opened(folder)
    assert records.class_names == ["cat", "cow", "dog"] and "cat-zzz_jpg" in keys_of(records) and len(records) == 13
    (folder / "up").symlink_to(folder)
    assert_refused("data/up/cat: a folder in that of a class; move its images up", opened, folder)


def test_pipes_and_sockets_are_not_opened(folder, monkeypatch):
    os.mkfifo(folder / "cat" / "pipe.png")
    monkeypatch.chdir(folder / "cat")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.png")
        records = opened(folder)
    reason = "pipes, sockets and devices"
    assert records.passed_over == [("cat/pipe.png", reason, False), ("cat/socket.png", reason, False)]


@pytest.fixture
def nobody(monkeypatch):
    """A user without any permission, as root has all."""
    # The checkout may be where nobody else can look.
    monkeypatch.setattr(variants, "list_files", cache(variants.list_files))
    variants.import_variant("sources", "image_folder")
    if os.geteuid() == 0:
        os.seteuid(65534)
        yield
        os.seteuid(0)
    else:
        yield


def open_to_all(folder):
    """Let other users into a folder below the temporary one."""
    while folder != Path(tempfile.gettempdir()):
        folder.chmod(0o755)
        folder = folder.parent


def test_what_cannot_be_read_is_named(folder, request):
    (folder / "cat" / "odd").write_bytes(JPEG)
    (folder / "cat" / "odd").chmod(0)
    open_to_all(folder)
    request.getfixturevalue("nobody")
    assert opened(folder).passed_over == [("cat/odd", "unreadable files (Permission denied)", False)]


def test_a_folder_that_cannot_be_read_is_refused(folder, request):
    open_to_all(folder)
    (folder / "cat").chmod(0)
    request.getfixturevalue("nobody")
    assert_refused("data/cat: cannot be read .Permission denied.; mend its permissions, or rem", opened, folder)


def test_no_file_is_opened_whose_name_is_that_of_a_picture_or_of_its_caption(folder, monkeypatch):
    expected = opened(folder)
    for number in range(4):
        (folder / "cat" / f"00{number}.txt").write_text("a cat")
    monkeypatch.setattr(listing, "file_item", None)
    records = opened(folder)
    assert keys_of(records) == keys_of(expected) and records.passed_over == []


def test_names_that_are_no_utf_8_can_be_printed(folder):
    (folder / "cat" / os.fsdecode(b"caf\xe9.md")).write_text("")
    (folder / "cat" / "two\nlines.md").write_text("")
    assert [item.name for item in opened(folder).passed_over] == ["cat/caf\\xe9.md", "cat/two\\nlines.md"]
