"""Tars that somebody else has written: what is found in them, and what is broken."""

import io
import json
import tarfile

import pytest
import webdataset
from PIL import Image

from hpcddm.data.image_decoding import read_image
from hpcddm.data.tars.tar_layout import TarLayout, ValueLocation
from hpcddm.errors import UserError
from tests.data.oddities import HEIC, index_existing_tar
from tests.data.oddities import write_tar as written
from tests.pictures import IMG2DATASET


def encoded(kind="PNG"):
    stream = io.BytesIO()
    Image.new("RGB", (30, 20), (200, 40, 40)).save(stream, kind)
    return stream.getvalue()


def size_of(content):
    return read_image(content).size


def indexed(tmp_path, members, layout=None):
    return index_existing_tar(written(tmp_path / "x.tar", members), layout or TarLayout(), check=size_of)


def test_img2datasets_tar_gives_what_its_own_files_say():
    names = ("aesthetic", "width", "height")
    adopted = index_existing_tar(IMG2DATASET / "00000.tar", TarLayout(), "emoji/", size_of, names)
    with tarfile.open(IMG2DATASET / "00000.tar") as file:
        contents = {member.name: file.extractfile(member).read() for member in file}
    keys = sorted(name.removesuffix(".jpg") for name in contents if name.endswith(".jpg"))
    assert adopted.index.keys == [f"emoji/{key}" for key in keys] and adopted.broken == []
    assert adopted.index.captions == [contents[f"{key}.txt"].decode() for key in keys]
    assert adopted.index.labels is None
    tar = (IMG2DATASET / "00000.tar").read_bytes()
    for key, offset, size in zip(keys, adopted.index.offsets.tolist(), adopted.index.sizes.tolist(), strict=True):
        assert tar[offset : offset + size] == contents[f"{key}.jpg"]
    stored = [json.loads(contents[f"{key}.json"]) for key in keys]
    assert [values["aesthetic"] for values in adopted.metadata] == [values["aesthetic"] for values in stored]
    assert adopted.entries == stored[0].keys() and all(values.keys() == set(names) for values in adopted.metadata)
    assert {(values["width"], values["height"]) for values in adopted.metadata} == {(24, 24)}


def test_what_webdatasets_writer_writes_is_found_wherever_the_layout_says(tmp_path):
    with webdataset.TarWriter(str(tmp_path / "x.tar")) as writer:
        for number in range(3):
            values = {"text": f"picture {number}", "class": number + 5}
            writer.write({"__key__": f"a/b{number}", "left.jpg": encoded("JPEG"), "right.jpg": b"", "json": values})
    layout = TarLayout(frozenset({"left.jpg"}), ValueLocation.parse("json:class"), ValueLocation.parse("json:text"))
    index = index_existing_tar(tmp_path / "x.tar", layout, check=size_of).index
    assert index.keys == ["a/b0", "a/b1", "a/b2"] and index.labels.tolist() == [5, 6, 7]
    assert index.captions == ["picture 0", "picture 1", "picture 2"]


PNG = encoded()
OTHERS = "(data.source.image names others); see data.source.image"
DOT = "(a name is split at its first dot); see data.source.image"
BOMB = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x7b\0\0\0\x7b\0\x08\x02\0\0\0"
BROKEN = [
    ({"png": PNG[:-30]}, ""),
    ({"png": PNG[:60] + bytes([PNG[60] ^ 8]) + PNG[61:]}, ""),
    ({"png": b""}, "0 bytes, which is not an image"),
    ({"png": b"<html>gone</html>"}, ""),
    ({"bin": b"no picture", "txt": b"caption"}, "no image"),
    ({"bin": PNG, "txt": b"x"}, "no image: b.bin has the extension bin " + OTHERS),
    ({"png": PNG, "jpg": encoded("JPEG")}, "2 images"),
    ({"png": PNG, "txt": b"caf\xe9"}, "its txt is not UTF-8"),
    ({"png": PNG, "txt": b"x", "cls": b"cat"}, "its class is not a number ('cat')"),
    ({"png": PNG, "txt": b"x", "cls": b"1_0"}, "its class is not a number ('1_0')"),
    ({"png": PNG, "txt": b"x", "cls": b"-1"}, "its class is -1, they are numbered from 0"),
    ({"png": PNG, "txt": b"x", "json": b"{"}, "its json is not JSON"),
    ({"png": PNG, "txt": b"x", "json": b"[1]"}, "its json is not a JSON object"),
    ({"png": PNG}, "no caption, others have one"),
    ({"png": BOMB, "txt": b"x"}, ""),
    ({"001.jpg": PNG}, f"no image: b.001.jpg has the extension 001.jpg {DOT}"),
    ({".jpg": PNG, "txt": b"x"}, f"no image: b..jpg has the extension .jpg {DOT}"),
]


@pytest.mark.parametrize("ends, reason", BROKEN)
def test_a_broken_sample_is_named_and_the_others_are_found(tmp_path, ends, reason):
    sound = [("a.png", PNG), ("a.txt", b"red"), ("c.webp", encoded("WEBP")), ("c.txt", b"blue")]
    adopted = indexed(tmp_path, [*sound, *((f"b.{end}", content) for end, content in ends.items())])
    assert adopted.index.keys == ["a", "c"] and adopted.index.captions == ["red", "blue"]
    ((key, said),) = adopted.broken
    assert key == "b" and said and (not reason or said == reason)


def test_half_of_a_character_in_json_is_no_caption(tmp_path):
    members = [("a.png", PNG), ("a.json", rb'{"text": "red"}'), ("b.png", PNG), ("b.json", rb'{"text": "\ud83d"}')]
    adopted = indexed(tmp_path, members, TarLayout(caption=ValueLocation.parse("json:text")))
    assert adopted.index.keys == ["a"] and adopted.broken == [("b", "its caption is not UTF-8")]


def test_keys_and_captions_of_any_kind(tmp_path):
    names = ["caf\u00e9/\u978b", "deep/er/key", "x" * 300, "two words", "-dash", "..hidden"]
    long = "w" * 5000
    members = [entry for name in names for entry in ((f"{name}.png", PNG), (f"{name}.txt", long.encode()))]
    adopted = indexed(tmp_path, members)
    assert adopted.index.keys == names[:-1] and set(adopted.index.captions) == {long}


def test_a_key_that_is_no_text_or_too_long_is_broken(tmp_path):
    members = [("a.png", PNG), (f"{'y' * 1200}.png", PNG), ("\u00ff.png", PNG)]
    path = written(tmp_path / "x.tar", members, encoding="latin-1", format=tarfile.GNU_FORMAT)
    adopted = index_existing_tar(path, TarLayout(), check=size_of)
    assert adopted.index.keys == ["a"] and adopted.broken[1] == ("\\xff", "its key is not UTF-8")
    assert adopted.broken[0][1] == "its key is longer than 1000 bytes"


@pytest.mark.parametrize("value", [3.7, True, "cat", [3], -1])
def test_a_class_in_json_is_a_whole_number_from_0(tmp_path, value):
    members = [("a.png", PNG), ("a.json", b'{"class": 3}')]
    members += [("b.png", PNG), ("b.json", json.dumps({"class": value}).encode())]
    adopted = indexed(tmp_path, members, TarLayout(label=ValueLocation.parse("json:class")))
    assert adopted.index.labels.tolist() == [3] and adopted.broken[0][1].startswith("its class is")


def test_every_picture_without_a_sample_is_broken_and_a_further_one_of_a_sample_is_not(tmp_path):
    views = [("a.left.jpg", encoded("JPEG")), ("a.right.jpg", b""), ("b.right.jpg", b""), ("c.jpg", encoded("JPEG"))]
    members = [*views, ("photo.001.png", PNG), ("d.mask.png", b""), ("._e.jpg", b"resource fork")]
    adopted = indexed(tmp_path, members, TarLayout(frozenset({"left.jpg"})))
    assert adopted.index.keys == ["a"] and [key for key, _ in adopted.broken] == ["b", "c"]
    assert adopted.broken[1][1] == "no image: c.jpg has the extension jpg (data.source.image names others)" + DOT[-23:]
    dotted = [(f"photo.{number:03}.jpg", encoded("JPEG")) for number in range(3)]
    assert len(indexed(tmp_path, [("x.jpg", encoded("JPEG")), *dotted]).broken) == 3


@pytest.mark.parametrize("between", [(), ("c.png",)])
def test_samples_of_one_key_are_found_all(tmp_path, between):
    """The catalog refuses them, or drops all but the first, as it does those of several tars."""
    members = [("a.png", PNG), ("a.txt", b"red"), ("b.png", PNG), ("b.txt", b"first")]
    members += [entry for name in between for entry in ((name, PNG), (f"{name[0]}.txt", b"red"))]
    members += [("b.png", PNG), ("b.txt", b"second")]
    adopted = indexed(tmp_path, members)
    assert adopted.index.keys == ["a", "b", *(name[0] for name in between), "b"] and not adopted.broken
    assert (adopted.index.captions[1], adopted.index.captions[-1]) == ("first", "second")


@pytest.mark.parametrize("order", ["a.txt b.txt a.png b.png", "a.png b.png a.txt b.txt"])
def test_of_a_tar_that_is_not_sorted_it_is_said(tmp_path, order):
    members = [(name, b"red" if name.endswith("txt") else PNG) for name in order.split()]
    adopted = indexed(tmp_path, members)
    apart = "its members are not next to each other in the tar"
    assert adopted.broken == [(key, apart) for key in "ab"]
    whole = [("a.png", PNG), ("a.txt", b"red"), ("b.png", PNG), ("b.txt", b"blue")]
    adopted = indexed(tmp_path, [*whole, ("a.txt", b"again")])
    assert adopted.index.captions == ["red", "blue"] and adopted.broken == [("a", apart)]


HARD, SYMBOLIC, PIPE = tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE


def odd(tmp_path, members, layout=None, **options):
    """What becomes of members, in a tar of two samples and these."""
    path = written(tmp_path / "odd.tar", [("s.png", PNG), ("s.txt", b"s"), ("t.png", PNG), ("t.txt", b"t"), *members])
    adopted = index_existing_tar(path, layout or TarLayout(), check=size_of, **options)
    assert adopted.index.keys[:2] == ["s", "t"]
    return adopted.index.keys[2:], adopted.broken, [tuple(item) for item in adopted.passed_over]


def test_further_extensions_of_pictures_are_read(tmp_path):
    names = ["u.jfif", "v.jpe", "w.JFIF", "x.apng", "y.j2k"]
    members = [entry for name in names for entry in ((name, PNG), (f"{name[0]}.txt", b"u"))]
    assert odd(tmp_path, members) == (list("uvwxy"), [], [])


def test_a_picture_without_an_extension_is_an_image(tmp_path):
    members = [entry for name in ("u", "a/b.c/u") for entry in ((f"{name}.txt", b"u"), (name, PNG))]
    members += [("v", b"text"), ("w", encoded("JPEG")), ("w.txt", b"w")]
    assert odd(tmp_path, members) == (["u", "a/b.c/u", "w"], [], [("v", "files without extension", False)])
    assert odd(tmp_path, [("u", PNG), ("u.png", PNG), ("u.txt", b"u")]) == ([], [("u", "2 images")], [])


UNNAMED = "pictures .{}, which data.source.image does not name"
UNNAMEABLE = "pictures whose names have no extension, or begin with a dot"
FURTHER = "further members of samples, ."
LINKED = {
    HARD: "hard links, which 'tar --hard-dereference' writes as files",
    SYMBOLIC: "symbolic links, which 'tar --dereference' writes as files",
}
NO_SAMPLES = [
    ("u.img", PNG, UNNAMED.format("img"), True),
    ("u.jxl", PNG, UNNAMED.format("jxl"), True),
    ("a/b.c/u.Image", PNG, UNNAMED.format("image"), True),
    (".u.png", PNG, UNNAMEABLE, True),
    (".u", PNG, UNNAMEABLE, True),
    ("u.heic", HEIC, "pictures in HEIC", True),
    ("u.png", (HARD, "s.png"), LINKED[HARD], True),
    ("v.png", (SYMBOLIC, "s.png"), LINKED[SYMBOLIC], True),
    ("s.cls", (HARD, "t.cls"), LINKED[HARD], True),
    ("s.png", (HARD, "s.png"), LINKED[HARD], False),
    ("README", (SYMBOLIC, "s.txt"), LINKED[SYMBOLIC], False),
    ("w.png", (PIPE, ""), "devices and pipes", False),
    ("s.npy", b"array", f"{FURTHER}npy", False),
    ("u.npy", b"array", "files .npy", False),
    ("LICENSE", b"", "files without extension", False),
    ("._u.png", b"\0\5\x16\7", "known junk", False),
    ("./._u.png", b"\0\5\x16\7", "known junk", False),
    ("@eaDir/s.png/SYNOPHOTO_THUMB_M.jpg", PNG, "known junk", False),
    ("__MACOSX/x/._u.png", b"", "known junk", False),
    ("x/.DS_Store", b"", "known junk", False),
]


@pytest.mark.parametrize("name, content, reason, is_broken", NO_SAMPLES)
def test_a_member_that_is_no_sample_is_named(tmp_path, name, content, reason, is_broken):
    assert odd(tmp_path, [(name, content)]) == ([], [], [(name, reason, is_broken)])


def test_further_pictures_of_a_sample_are_counted(tmp_path):
    members = [("u.png", PNG), ("u.seg.png", PNG), ("u.depth.exr", b"v/1\x01"), ("u.txt", b"u")]
    passed_over = [(f"u.{end}", f"{FURTHER}{end}", False) for end in ("seg.png", "depth.exr")]
    assert odd(tmp_path, members) == (["u"], [], passed_over)


def test_a_picture_is_passed_over_where_the_layout_names_others(tmp_path):
    members = [("u.jpg", encoded("JPEG")), ("s.jpg", encoded("JPEG")), ("u", PNG)]
    _, broken, passed_over = odd(tmp_path, members, TarLayout(frozenset({"png"})))
    expected = [("u.jpg", UNNAMED.format("jpg"), True), ("s.jpg", f"{FURTHER}jpg", False), ("u", UNNAMEABLE, True)]
    assert broken == [] and sorted(passed_over) == sorted(expected)


def test_folders_in_a_tar_are_nothing_of_their_own(tmp_path):
    assert odd(tmp_path, [("./", (tarfile.DIRTYPE, "")), ("x.png/", (tarfile.DIRTYPE, ""))]) == ([], [], [])
    path = written(tmp_path / "folder.tar", [("x", (tarfile.DIRTYPE, ""))])
    adopted = index_existing_tar(path, TarLayout())
    assert adopted.index.keys == [] == adopted.broken == adopted.passed_over


def test_of_two_splits_each_member_is_counted_once(tmp_path):
    members = [*((f"{number:02d}.npz", b"x") for number in range(40)), ("README", b"")]
    for half, expected in ((True, members[:20]), (False, members[20:])):
        passed_over = odd(tmp_path, members, is_wanted=lambda key, half=half: key in "st" or (key < "20") == half)[2]
        assert {name for name, *_ in passed_over} == {name for name, _ in expected}


def test_a_tar_without_its_end_is_refused_unless_the_layout_says_so(tmp_path):
    path = written(tmp_path / "x.tar", [("a.png", PNG), ("b.png", PNG)], has_end=False)
    with pytest.raises(UserError, match=r"x\.tar: a torn .*probably cut.*; get it again, or set .*\.require_end"):
        index_existing_tar(path, TarLayout())
    assert index_existing_tar(path, TarLayout(require_end=False)).index.keys == ["a", "b"]
