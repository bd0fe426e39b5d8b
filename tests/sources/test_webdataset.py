"""Tars where they lie: which of them there are, and what is said of those that are not."""

import io
import re
import shutil
import tarfile
import time

import pytest

from hpcddm.data.image_decoding import ImageError
from hpcddm.data.tars.tar_layout import TarLayout, ValueLocation
from hpcddm.errors import UserError
from hpcddm.loading.source_check import _check_readable
from tests.data.refusals import assert_refused
from tests.pictures import IMG2DATASET
from tests.sources.opening import source, split_of

TARS = {"folder": str(IMG2DATASET), "heldout": {"shards": 1}}


@pytest.mark.parametrize("pattern", ["**.tar", "/abs/*.tar", "", "**/**/**/*.tar", "**/a/" * 9 + "*.tar"])
def test_what_is_no_pattern_is_named(pattern):
    with pytest.raises(UserError, match=r"data\.source: .* is not a pattern of paths in the folder"):
        source("webdataset", **TARS, tars=pattern).content_hash()


@pytest.mark.parametrize("key", ["tars", "files"])
def test_a_pattern_of_many_stars_takes_no_time(tmp_path, key):
    place = tmp_path / "/".join("a" * 20)
    place.mkdir(parents=True)
    for number in range(100):
        (place / ("a" * 200 + str(number))).touch()
    started = time.monotonic()
    for pattern in ("**/" * 30 + "*.tar", "**/**/" + "*a" * 50 + "b", "*/" * 20 + "*a" * 50 + "b"):
        name, own = ("webdataset", TARS) if key == "tars" else ("huggingface", {"heldout": {"share": 0.5}})
        assert_refused(r"^data\.source", source(name, **own | {"folder": str(tmp_path), key: pattern}).content_hash)
    assert time.monotonic() - started < 5


def test_a_broken_picture_at_the_beginning_does_not_keep_a_run_from_starting(tmp_path):
    shutil.copytree(IMG2DATASET, tmp_path / "tars")
    content = bytearray((tmp_path / "tars" / "00000.tar").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(content)) as file:
        offset = file.next().offset_data
    content[offset : offset + 100] = bytes(100)
    (tmp_path / "tars" / "00000.tar").write_bytes(content)
    records = split_of("webdataset", folder=str(tmp_path / "tars"), heldout={"shards": 1})
    with pytest.raises(ImageError, match=r"00000\.tar: "):
        records[0]
    _check_readable(records)


def empty(path):
    tarfile.open(path, "w").close()
    return path


def test_the_first_tar_may_be_empty(tmp_path):
    shutil.copytree(IMG2DATASET, tmp_path / "tars")
    whole = split_of("webdataset", folder=str(IMG2DATASET), heldout={"shards": 1})
    empty(tmp_path / "tars" / "0000.tar")
    records = split_of("webdataset", folder=str(tmp_path / "tars"), heldout={"shards": 1})
    assert records[0].key == whole[0].key and records.has_captions and len(records) >= len(whole)
    for path in (tmp_path / "tars").glob("0*.tar"):
        empty(path)
    with pytest.raises(UserError, match=r"0000\.tar: no samples with an image, nor in the 3 tars behind it; no memb"):
        split_of("webdataset", folder=str(tmp_path / "tars"), heldout={"shards": 1})
    with pytest.raises(UserError, match=r"0000\.tar: no samples with an image, nor in the tar behind it; no members"):
        split_of("webdataset", folder=str(tmp_path / "tars"), heldout={"shards": 3})


@pytest.mark.parametrize("name", ["2.tar.gz", "2.tgz", "a/2.tar.zst", "2.txz", "2.tar.bz2"])
def test_compressed_tars_are_refused_by_name_alone_or_beside_others(tmp_path, name):
    compressed = tmp_path / "tars" / name
    compressed.parent.mkdir(parents=True)
    compressed.write_bytes(b"")
    advice = r" is compressed; decompress all, or name the tars that are meant by data\.source\.tars"
    for keys in ({}, {"tars": "*.tra"}):
        assert_refused(re.escape(str(compressed)) + advice, paths_of, tmp_path / "tars", **keys)
    empty(tmp_path / "tars" / "1.tar")
    (tmp_path / "tars" / "3.txt.gz").write_bytes(b"")
    assert_refused(re.escape(str(compressed)) + advice, paths_of, tmp_path / "tars")
    assert paths_of(tmp_path / "tars", tars="*.tar") == ["1.tar"]


def test_an_extension_may_have_its_dot(tmp_path):
    keys = {"image": [".JPG"], "caption": ".json:caption", "label": None, "metadata": ".json"}
    (tar, *_) = source("webdataset", **TARS, **keys).tars("train")
    assert tar.layout == TarLayout(frozenset({"jpg"}), None, ValueLocation("json", "caption"), "json")


def paths_of(folder, **keys):
    tars = source("webdataset", folder=str(folder), heldout={"share": 0.5}, **keys).tars("train")
    return [tar.path.relative_to(folder).as_posix() for tar in tars]


def test_folders_behind_links_are_found_once_even_in_a_circle(tmp_path):
    elsewhere = shutil.copytree(IMG2DATASET, tmp_path / "disk" / "part", ignore=shutil.ignore_patterns("*[!r]"))
    folder = tmp_path / "collection"
    (folder / "inner").mkdir(parents=True)
    shutil.copy(IMG2DATASET / "00000.tar", folder / "inner" / "own.tar")
    (folder / "inner" / "up").symlink_to(folder)
    (folder / "again").symlink_to(folder / "inner")
    (folder / "linked").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(tmp_path / "disk")
    (folder / "one.tar").symlink_to(elsewhere / "00001.tar")
    found = ["inner/own.tar", *(f"linked/0000{number}.tar" for number in range(4)), "one.tar"]
    assert paths_of(folder) == found
    assert paths_of(folder, tars="linked/**/*1.tar") == ["linked/00001.tar"]
    assert paths_of(folder, tars="*/own.tar") == ["again/own.tar", "inner/own.tar"]
