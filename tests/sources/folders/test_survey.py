"""Bounded surveys of folders: numbers by name, few names in memory, links, and formats by content."""

import os

import pytest

from hpcddm.sources.folders import survey
from hpcddm.sources.folders.survey import FolderSurvey
from tests.data.oddities import HEIC, encoded


def fill(root, **counts):
    """Write empty files, so many of each extension."""
    root.mkdir(parents=True, exist_ok=True)
    for end, count in counts.items():
        for number in range(count):
            (root / f"{number:04d}.{end}").touch()
    return root


def test_files_are_counted_by_extension_and_folder(tmp_path):
    fill(tmp_path / "d", jpg=3, TXT=2)
    fill(tmp_path / "d" / "a" / "b", jpg=5)
    fill(tmp_path / "d" / ".git", jpg=7)
    fill(tmp_path / "d" / "@eaDir", jpg=7)
    (tmp_path / "d" / "Thumbs.db").touch()
    seen = FolderSurvey(tmp_path / "d")
    assert dict(seen.counts) == {".jpg": 8, ".txt": 2} and seen.file_count == 10 and seen.is_whole
    assert list(seen.folders) == ["", "a", "a/b"] and seen.top.folders == ["a"]
    assert seen.picture_count("") == 3 and seen.picture_count("a") == 0 and seen.picture_count("a/b") == 5
    assert seen.places_with_pictures == {"", "a", "a/b"} and seen.hidden == 3


def test_few_names_are_kept_and_all_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "NAMES_KEPT", 4)
    fill(tmp_path / "d" / "x", tar=9, jpg=6)
    fill(tmp_path / "d" / "y", tar=2)
    seen = FolderSurvey(tmp_path / "d")
    assert len(seen.folders["x"].names[".tar"]) == 4
    expected = [f"{place}/{number:04d}.tar" for place, count in (("x", 9), ("y", 2)) for number in range(count)]
    assert [path.relative_to(tmp_path / "d").as_posix() for path in seen.paths((".tar",))] == expected
    assert len(seen.paths((".tar",), "y")) == 2 and len(seen.paths((".tar",), most=3)) == 3


def test_a_sample_is_from_as_many_folders_as_possible(tmp_path):
    for name in "abcd":
        fill(tmp_path / "d" / name, jpg=50)
    sample = FolderSurvey(tmp_path / "d").sample_pictures("abcd", 8)
    assert sorted(path[0] for path in sample) == list("aabbccdd")
    assert len(FolderSurvey(tmp_path / "d").sample_pictures("a", 8)) == 8


def test_links_are_followed_once(tmp_path):
    fill(tmp_path / "other", jpg=4)
    root = fill(tmp_path / "d", png=1)
    (root / "linked").symlink_to(tmp_path / "other")
    (root / "again").symlink_to(tmp_path / "other")
    (root / "circle").symlink_to(root)
    (root / "file.gif").symlink_to(tmp_path / "other" / "0000.jpg")
    (root / "lost.jpg").symlink_to(tmp_path / "nowhere")
    os.mkfifo(root / "pipe.jpg")
    (root / "to-pipe.jpg").symlink_to(root / "pipe.jpg")
    seen = FolderSurvey(root)
    assert dict(seen.counts) == {".png": 1, ".gif": 1, ".jpg": 4} and seen.lost_links == ["lost.jpg"]


def test_pictures_by_other_names_are_known_by_their_content(tmp_path):
    root = fill(tmp_path / "d", bin=2)
    for name, content in {"a.img": encoded(1), "b": encoded(2), "c.dat": HEIC, "e.txt": encoded(3)}.items():
        (root / name).write_bytes(content)
    seen = FolderSurvey(root)
    assert seen.kinds == {".img": "picture", "": "picture", ".dat": "HEIC"} and seen.picture_count("") == 2


@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_FOLDERS"])
def test_counting_stops_at_a_limit(tmp_path, monkeypatch, limit):
    for name in "abc":
        fill(tmp_path / "d" / name, jpg=2)
    monkeypatch.setattr(survey, limit, 3)
    seen = FolderSurvey(tmp_path / "d")
    assert not seen.is_whole and seen.file_count in (3, 4)


def test_one_file_alone(tmp_path):
    root = fill(tmp_path / "d", tar=2)
    seen = FolderSurvey(root, "0001.tar")
    assert seen.paths((".tar",)) == [root / "0001.tar"] and dict(seen.counts) == {".tar": 1}
    assert seen.has_file("0001.tar") and not seen.has_file("0000.tar")
