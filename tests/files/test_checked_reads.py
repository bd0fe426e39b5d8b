"""Files that others wrote: what is no plain file, too long or not strictly JSON is refused in one line, at once."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcddm.data.catalog import CatalogPart, ImageFormat, SplitEntry, catalog_as_json
from hpcddm.data.sample_file import SampleFile
from hpcddm.errors import UserError
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import DEPTH, Unreadable, parse_json, read_json


@dataclass(frozen=True)
class Pair:
    """A record for tests."""

    name: str
    size: float


def refusal(path: Path, *arguments, **keywords) -> str:
    """The error about a file, which comes at once, on one line of visible letters."""
    started = time.monotonic()
    with pytest.raises(Unreadable) as caught:
        read_json(path, *arguments, **keywords)
    assert time.monotonic() - started < 2
    assert str(caught.value).isprintable() and isinstance(caught.value, UserError)
    assert str(caught.value).endswith(checked_reads.REPAIR_ADVICE)
    return caught.value.reason


def test_json_comes_back_also_as_a_record(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"name": "a", "size": 2}')
    assert read_json(path) == checked_reads.read_mapping(path, Pair) == {"name": "a", "size": 2}
    assert read_json(path, Pair) == Pair("a", 2.0)
    assert read_json(tmp_path / "missing.json", Pair) is None
    assert read_json(path / "inner.json") is None
    with pytest.raises(Unreadable, match=r"missing.json: is missing"):
        checked_reads.read_required_json(tmp_path / "missing.json")


def test_names_of_files_that_are_not_utf_8_come_back(tmp_path):
    form = ImageFormat(3, 32, {"name": "crop"})
    entry = SplitEntry(
        ["key"], [SampleFile("\udcff.tar", 3, 4)], [CatalogPart("train-000", "shard/a.h5", 2, "0")], form
    )
    atomic.write_json(tmp_path / "catalog.json", catalog_as_json({"train": entry}))
    assert read_json(tmp_path / "catalog.json", dict[str, SplitEntry]) == {"train": entry}
    (tmp_path / "x.json").write_text('{"name": "\\udcff", "size": "1"}')
    assert "size: Input should be a valid number" in refusal(tmp_path / "x.json", Pair)


def bind_socket(path):
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def test_what_is_no_plain_file_is_refused_at_once(tmp_path, monkeypatch):
    # The name of a socket has 107 bytes at most.
    monkeypatch.chdir(tmp_path)
    for kind, make in (("a pipe", os.mkfifo), ("a folder", os.mkdir), ("a socket", bind_socket)):
        make(kind)
        assert refusal(Path(kind)).startswith(f"is {kind}")
    assert refusal(Path("/dev/zero")).startswith("is a device")
    with pytest.raises(Unreadable, match="is a device"):
        checked_reads.read_required_json(Path("/dev/zero"), follows_links=True)


def test_a_link_is_followed_for_files_that_the_user_names_alone(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("x.json")
    assert refusal(tmp_path / "link.json") == "is a link"
    assert checked_reads.read_required_json(tmp_path / "link.json", follows_links=True) == {}


def test_below_a_root_no_folder_is_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x.json").write_text("1")
    (tmp_path / "link").symlink_to("there")
    assert read_json(tmp_path / "link" / "x.json") == 1
    assert checked_reads.read_bytes(tmp_path / "there" / "x.json", 9, root=tmp_path) == b"1"
    for place, reason in (("link/x.json", "is a link"), ("there/x.json/y/z.json", "is not a folder")):
        with pytest.raises(Unreadable) as raised:
            checked_reads.read_bytes(tmp_path / place, 9, root=tmp_path)
        assert raised.value.reason == reason


def test_a_file_that_is_too_long_is_refused_and_not_read(tmp_path):
    path = tmp_path / "x.json"
    path.touch()
    os.truncate(path, 1 << 40)
    assert refusal(path, max_bytes=1000) == "has more than 1,000 bytes"
    path.write_text(f'"{"a" * 998}"')
    assert read_json(path, max_bytes=1000) == "a" * 998
    path.write_text(f'"{"a" * 999}"')
    assert refusal(path, max_bytes=1000) == "has more than 1,000 bytes"


def test_a_file_that_grows_while_it_is_read_ends_at_the_limit(tmp_path):
    path = tmp_path / "x.json"
    code = "import sys\nwhile True:\n    open(sys.argv[1], 'a').write('[' * 100_000)"
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)])
    try:
        while not path.exists() or path.stat().st_size < 10_000_000:
            time.sleep(0.01)
        assert refusal(path, max_bytes=1_000_000) == "has more than 1,000,000 bytes"
    finally:
        writer.kill()
        writer.wait()


def test_a_file_whose_reading_fails_is_named():
    assert refusal(Path("/proc/self/mem")) == "Input/output error"


WRONG = {
    "empty": (b"", "Expecting value"),
    "torn": (b'{"a": 1', "Expecting"),
    "nul": (b"\0" * 100, "Expecting value"),
    "not UTF-8": (b'"\xff\xfe"', "is not UTF-8"),
    "UTF-16": ("{}".encode("utf-16"), "is not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf{}", "Expecting value"),
    "two values": (b"{} {}", "Extra data"),
    "key twice": (b'{"b": {"a": 1, "a": 1}}', "key 'a' appears twice"),
    "key twice, of a terminal": (b'{"\\u001b[2J": 1, "\\u001b[2J": 1}', r"key '\x1b[2J' appears twice"),
    "NaN": (b"[NaN]", "NaN is not JSON"),
    "infinity": (b"[-Infinity]", "-Infinity is not JSON"),
    "too large a float": (b"[1e999]", "too large"),
    "too large an integer": (str((1 << 128) + 1).encode(), "too large"),
    "5000 digits": (b"9" * 5000, "limit"),
    "deep lists": (b"[" * 100_000 + b"]" * 100_000, f"deeper than {DEPTH} levels"),
    "unclosed lists": (b"[" * 100_000, f"deeper than {DEPTH} levels"),
    "deep mappings": (b'{"a":' * 900 + b"1" + b"}" * 900, f"deeper than {DEPTH} levels"),
    "one level too many": (b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1), f"deeper than {DEPTH} levels"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_strictly_json_is_refused_with_the_reason(tmp_path, case):
    content, reason = WRONG[case]
    (tmp_path / "x.json").write_bytes(content)
    assert reason in refusal(tmp_path / "x.json")


OTHER_RECORDS = {
    "[]": "Input should be an object",
    "null": "is null",
    '{"name": "a"}': "size: Field required",
    '{"name": "a", "size": "1"}': "size: Input should be a valid number",
    '{"name": "a", "size": true}': "size: Input should be a valid number",
    '{"name": 1, "size": 1}': "name: Input should be a valid string",
    '{"name": "a", "size": 1, "more\\n": 1}': "more : Unexpected",
}


def test_a_record_of_other_keys_or_types_names_the_key():
    for text, reason in OTHER_RECORDS.items():
        with pytest.raises(ValueError, match=f"^{reason}"):
            parse_json(text.encode(), Pair)
