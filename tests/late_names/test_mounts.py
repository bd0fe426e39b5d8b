"""The helper itself: how late each node sees the other one's changes, and what it sees at once."""

import errno
import fcntl
import os

import pytest


def test_a_name_that_another_node_has_renamed_leads_to_the_old_folder_for_a_while(late):
    (late.a / "staged").mkdir()
    (late.b / "staged").stat()
    (late.a / "staged").rename(late.a / "published")
    (late.a / "staged").mkdir()
    (late.b / "staged" / "file").write_text("of b")
    assert os.listdir(late.server / "published") == ["file"] and os.listdir(late.server / "staged") == []


def test_without_a_cache_the_name_leads_to_the_new_folder(fresh):
    (fresh.a / "staged").mkdir()
    (fresh.b / "staged").stat()
    (fresh.a / "staged").rename(fresh.a / "published")
    (fresh.a / "staged").mkdir()
    (fresh.b / "staged" / "file").write_text("of b")
    assert os.listdir(fresh.server / "staged") == ["file"] and os.listdir(fresh.server / "published") == []


def test_what_was_absent_stays_so_until_its_folder_is_listed(late):
    assert not (late.b / "new").exists()
    (late.a / "new").write_text("here")
    assert not (late.b / "new").exists()
    with pytest.raises(FileNotFoundError):
        (late.b / "new").read_text()
    os.listdir(late.b)
    assert (late.b / "new").read_text() == "here"


def test_without_a_cache_what_was_absent_is_there_at_once(fresh):
    assert not (fresh.b / "new").exists()
    (fresh.a / "new").write_text("here")
    assert (fresh.b / "new").read_text() == "here"


def test_what_was_removed_stays_until_its_folder_is_listed(late):
    (late.a / "old").write_text("here")
    assert (late.b / "old").exists()
    (late.a / "old").unlink()
    assert (late.b / "old").exists()
    os.listdir(late.b)
    assert not (late.b / "old").exists()


def test_an_open_finds_what_the_name_leads_to_now(late):
    """Close-to-open, for a file that was replaced, one that has grown, and one that was removed."""
    for name in ("replaced", "grown", "removed"):
        (late.a / name).write_text("old")
        assert (late.b / name).read_text() == "old" and (late.b / name).stat().st_size == 3
    (late.a / "other").write_text("newer")
    (late.a / "other").replace(late.a / "replaced")
    with open(late.a / "grown", "a") as file:
        file.write("er")
    (late.a / "removed").unlink()
    assert (late.b / "replaced").stat().st_size == (late.b / "grown").stat().st_size == 3
    assert ((late.b / "replaced").read_text(), (late.b / "grown").read_text()) == ("newer", "older")
    with pytest.raises(FileNotFoundError):
        (late.b / "removed").read_text()


def test_a_folder_that_was_removed_under_a_node_is_looked_up_anew(late):
    (late.a / "folder").mkdir()
    (late.b / "folder").stat()
    (late.a / "folder").rmdir()
    (late.a / "folder").mkdir()
    (late.a / "folder" / "file").write_text("new")
    assert os.listdir(late.b / "folder") == ["file"]


def test_a_node_sees_what_it_does_itself(late):
    place = late.b / "folder"
    assert not place.exists()
    place.mkdir()
    (place / "one").write_text("1")
    (place / "one").rename(place / "two")
    assert os.listdir(place) == ["two"] and (place / "two").read_text() == "1" and not (place / "one").exists()
    with open(place / "two", "a") as file:
        file.write("2")
    assert (place / "two").read_text() == "12"
    os.link(place / "two", place / "three")
    (place / "two").unlink()
    assert (place / "three").read_text() == "12" and (place / "three").stat().st_nlink == 1


def test_exclusive_creation_asks_the_server(late):
    assert not (late.b / "file").exists() and not (late.b / "folder").exists()
    (late.a / "file").write_text("of a")
    (late.a / "folder").mkdir()
    with pytest.raises(FileExistsError):
        open(late.b / "file", "x")
    with pytest.raises(FileExistsError):
        (late.b / "folder").mkdir()


def test_appends_of_two_nodes_in_turn_stand_one_after_the_other(late):
    for node in (late.a, late.b, late.a, late.b):
        with open(node / "journal", "a") as file:
            file.write(f"{node.name}\n")
    assert (late.a / "journal").read_text() == "a\nb\na\nb\n"


@pytest.mark.parametrize("lock", [fcntl.flock, fcntl.lockf])
def test_locks_hold_on_both_nodes(late, lock):
    (late.a / "lock").touch()
    with open(late.a / "lock", "r+") as first, open(late.b / "lock", "r+") as second:
        lock(first, fcntl.LOCK_EX)
        with pytest.raises(OSError) as refused:
            lock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert refused.value.errno in (errno.EAGAIN, errno.EACCES)
        lock(first, fcntl.LOCK_UN)
        lock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
