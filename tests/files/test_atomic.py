import json
import os
import subprocess
import sys

import pytest

from hpcddm.errors import UserError
from hpcddm.files import atomic, checked_reads
from tests.helpers import python


@pytest.fixture
def full_disk(tmp_path):
    """A folder on a file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("durable", [True, False])
def test_text_is_replaced_and_nothing_else_is_left(tmp_path, durable):
    file = tmp_path / "deep" / "file.txt"
    for text in ("first", "second, with umlauts: \xe4\xf6\xfc\n"):
        atomic.write_text(file, text, durable)
        assert file.read_text() == text
    assert names(file.parent) == ["file.txt"]


def test_json_comes_back_and_a_number_that_it_cannot_hold_is_named_or_none(tmp_path):
    file, places, plain = tmp_path / "x.json", [], {"a": [1, 2.5, None, "x"], "b": {"c": True}}
    atomic.write_json(file, plain)
    assert checked_reads.read_json(file) == plain
    value = {"a": [1.0, {"b": float("nan")}], "c": (float("inf"), 2)}
    assert atomic.finite_json(value, places) == {"a": [1.0, {"b": None}], "c": [None, 2]} and places == ["a.1.b", "c.0"]
    with pytest.raises(UserError, match=f"{file}: cannot write a.1.b, which is not finite"):
        atomic.write_json(file, value)


def test_a_full_disk_leaves_the_old_file_and_names_what_cannot_be_written_or_appended(full_disk):
    file = full_disk / "x.json"
    atomic.write_text(file, "old")
    with pytest.raises(UserError, match=r"x.json: cannot write 100000 bytes: No space left on device"):
        atomic.write_text(file, "n" * 100_000)
    assert file.read_text() == "old" and names(full_disk) == ["x.json"]
    with pytest.raises(UserError, match="lines: cannot append"):
        for _ in range(100):
            atomic.append_line(full_disk / "lines", "x" * 1000)


def test_what_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "full").mkdir(parents=True)
    for target in ("file/x.json", "file/deep/x.json", "folder"):
        with pytest.raises(UserError, match=target):
            atomic.write_text(tmp_path / target, "text")
    assert names(tmp_path) == ["file", "folder"]


def test_the_content_is_on_the_disk_before_the_file_has_its_name(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def note(descriptor):
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), (tmp_path / "x").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    atomic.write_text(tmp_path / "x", "text")
    # Another name with the text first, and then the folder's list of names.
    assert [(path != str(tmp_path), is_there) for path, is_there in synced] == [(True, False), (False, True)]


KILLED = """
import os, signal, sys
from pathlib import Path
from hpcddm.files import atomic
atomic.os.replace = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
atomic.write_json(Path(sys.argv[1]), {"new": True})
"""


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    file = tmp_path / "x.json"
    atomic.write_json(file, {"old": True})
    assert python(KILLED, file).returncode == -9
    assert json.loads(file.read_text()) == {"old": True} and len(names(tmp_path)) == 2


APPEND = """
import sys
from pathlib import Path
from hpcddm.files.atomic import append_line
for _ in range(20): append_line(Path(sys.argv[1]), "y" * 3000)
"""


def test_concurrent_appends_do_not_tear_each_other(tmp_path):
    file = tmp_path / "x"
    writers = [subprocess.Popen([sys.executable, "-c", APPEND, str(file)]) for _ in range(3)]
    assert [writer.wait(30) for writer in writers] == [0, 0, 0]
    # A line that is just being written looks torn, so a blank one may follow it.
    assert [line for line in file.read_text().splitlines() if line] == ["y" * 3000] * 60


def test_a_line_after_a_torn_one_stands_alone(tmp_path):
    (tmp_path / "x").write_text("whole\nto")
    atomic.append_line(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text().splitlines() == ["whole", "to", "new"]


def test_what_has_no_end_is_not_hashed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in ("pipe", "/dev/zero"):
        with pytest.raises(UserError, match="is not a file"):
            atomic.sha256(tmp_path / place)
