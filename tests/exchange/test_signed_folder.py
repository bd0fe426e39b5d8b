"""Folders that travel between sites: what was signed arrives, and nothing else does."""

import json
import os
import resource
import socket
import subprocess
from dataclasses import dataclass, field

import pytest

from hpcddm.errors import UserError
from hpcddm.exchange import signing, ssh_keys
from hpcddm.exchange.signed_folder import SUMS, FileName, ListedFile, read_document, receive, write_folder

NAME, LARGEST = "bundle.json", 1 << 20


@dataclass(frozen=True)
class Letter:
    """A document of the tests."""

    format: str
    images: int
    loss: float
    files: dict[FileName, ListedFile] = field(default_factory=dict)


CONTENTS = {"weights.safetensors": bytes(range(256)) * 40, "sample.png": b"png", "empty": b""}


@pytest.fixture
def key(tmp_path):
    ssh_keys.make_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def sent(tmp_path, key):
    """A folder as a site sends it."""
    for name, content in CONTENTS.items():
        (tmp_path / f"own-{name}").write_bytes(content)
    paths = {name: tmp_path / f"own-{name}" for name in CONTENTS}
    write_folder(tmp_path / "sent", NAME, Letter("letter 1", 3, 0.5), paths, key, signing.BUNDLE)
    return tmp_path / "sent"


def read(folder):
    return read_document(folder, NAME, Letter, signing.BUNDLE, LARGEST)


def take(folder, target):
    """Receive a folder as an import does; return what arrived."""
    document, _ = read(folder)
    target.mkdir(exist_ok=True)
    receive(folder, NAME, document.files, target, lambda size: None)
    return {path.name: path.read_bytes() for path in target.iterdir()}


def test_what_was_signed_arrives(sent, tmp_path, key):
    assert take(sent, tmp_path / "inbox") == CONTENTS
    document, signer = read(sent)
    assert (document.format, document.images, document.loss) == ("letter 1", 3, 0.5)
    assert signer == ssh_keys.read_public(key)


def test_the_sums_are_those_of_coreutils(sent):
    assert (
        subprocess.run(["sha256sum", "-c", "--strict", SUMS], cwd=sent, capture_output=True, check=False).returncode
        == 0
    )
    assert len((sent / SUMS).read_text().splitlines()) == len(list(sent.iterdir())) - 1


def test_writing_again_gives_the_same_bytes(sent, tmp_path, key):
    before = {path.name: path.read_bytes() for path in sent.iterdir()}
    paths = {name: tmp_path / f"own-{name}" for name in CONTENTS}
    write_folder(sent, NAME, Letter("letter 1", 3, 0.5), paths, key, signing.BUNDLE)
    assert {path.name: path.read_bytes() for path in sent.iterdir()} == before


def replace_by(kind):
    def change(folder):
        path = folder / "sample.png"
        content = path.read_bytes()
        path.unlink()
        if kind == "link":
            (folder.parent / "elsewhere").write_bytes(content)
            path.symlink_to(folder.parent / "elsewhere")
        elif kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            server = socket.socket(socket.AF_UNIX)
            os.chdir(folder)
            server.bind("sample.png")
        elif kind == "device":
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))

    return change


def sparse(folder):
    with open(folder / "sample.png", "wb") as file:
        file.truncate(10 << 40)


def many(folder):
    for number in range(3000):
        (folder / f"x{number}").touch()


def rewritten(**changes):
    def change(folder):
        values = json.loads((folder / NAME).read_text()) | changes
        (folder / NAME).write_text(json.dumps(values))

    return change


HOSTILE = {
    "another byte": lambda folder: (folder / "weights.safetensors").write_bytes(
        CONTENTS["weights.safetensors"][:-1] + b"x"
    ),
    "a byte less": lambda folder: (folder / "weights.safetensors").write_bytes(CONTENTS["weights.safetensors"][:-1]),
    "a byte more": lambda folder: (folder / "weights.safetensors").write_bytes(CONTENTS["weights.safetensors"] + b"x"),
    "a file less": lambda folder: (folder / "empty").unlink(),
    "a file more": lambda folder: (folder / "code.py").write_text("import os"),
    "a hidden file more": lambda folder: (folder / ".profile").touch(),
    "a name of two lines more": lambda folder: (folder / "a\nb").touch(),
    "a name that is not UTF-8 more": lambda folder: (folder / os.fsdecode(b"\xff")).touch(),
    "a name in capitals": lambda folder: (folder / "sample.png").rename(folder / "Sample.png"),
    "a link": replace_by("link"),
    "a folder": replace_by("folder"),
    "a pipe": replace_by("pipe"),
    "a device": replace_by("device"),
    "a socket": replace_by("socket"),
    "ten terabytes": sparse,
    "thousands of files": many,
    "no signature": lambda folder: (folder / f"{NAME}.sig").unlink(),
    "no document": lambda folder: (folder / NAME).unlink(),
    "a changed document": rewritten(images=4),
    "a document of two megabytes": lambda folder: (folder / NAME).write_bytes(b" " * (2 << 20)),
    "a linked document": lambda folder: (
        (folder / NAME).rename(folder.parent / NAME),
        (folder / NAME).symlink_to(folder.parent / NAME),
    ),
}


@pytest.fixture
def private_place(monkeypatch, tmp_path):
    """A current folder to which a case may change it."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", HOSTILE)
def test_anything_else_is_refused_in_one_printable_line(sent, tmp_path, case, private_place):
    HOSTILE[case](sent)
    with pytest.raises(UserError) as raised:
        take(sent, tmp_path / "inbox")
    text = str(raised.value)
    assert text.isprintable() and text.isascii() and len(text) < 1000


def test_what_operating_systems_leave_is_passed_over_and_said(sent, tmp_path, capsys):
    for name in (".DS_Store", f"._{NAME}", "Thumbs.db", "desktop.ini", "._weights.safetensors"):
        (sent / name).symlink_to("/nowhere")
    (sent / "__MACOSX").mkdir()
    assert take(sent, tmp_path / "inbox") == CONTENTS
    assert (
        f"passed over .DS_Store, ._{NAME}, ._weights.safetensors, Thumbs.db, __MACOSX, desktop.ini,"
        in capsys.readouterr().err
    )
    (sent / ".profile").touch()
    with pytest.raises(UserError, match=r"\.profile is not listed in what was signed; refused, remove it first"):
        take(sent, tmp_path / "again")


DOCUMENTS = {
    "a key twice": ('{"format": "letter 1", "images": 3, "images": 4, "loss": 1, "files": {}}', "appears twice"),
    "an unknown key": ('{"format": "a", "images": 3, "loss": 1.0, "files": {}, "code": "x"}', "code"),
    "a missing key": ('{"format": "a", "loss": 1.0, "files": {}}', "images"),
    "another type": ('{"format": "a", "images": "3", "loss": 1.0, "files": {}}', "images"),
    "not a number": ('{"format": "a", "images": 3, "loss": NaN, "files": {}}', "NaN"),
    "infinity": ('{"format": "a", "images": 3, "loss": 1e999, "files": {}}', "too large"),
    "a long number": ('{"format": "a", "images": 3, "loss": 0.1000000000000000000001, "files": {}}', "digits"),
    "a huge number": ('{"format": "a", "images": 100000000000000000000000, "loss": 1.0, "files": {}}', "digits"),
    "no ASCII": ('{"format": "l\u00e9tter", "images": 3, "loss": 1.0, "files": {}}', "printable ASCII"),
    "an escape for the terminal": (
        '{"format": "\\u001b[2J", "images": 3, "loss": 1.0, "files": {}}',
        "printable ASCII",
    ),
    "a long text": (f'{{"format": "{"a" * 5000}", "images": 3, "loss": 1.0, "files": {{}}}}', "too long"),
    "a path as a name": (
        f'{{"format": "a", "images": 3, "loss": 1.0, "files": {{"../x": {{"size": 0, "sha256": "{"0" * 64}"}}}}}}',
        "files",
    ),
    "a negative size": (
        f'{{"format": "a", "images": 3, "loss": 1.0, "files": {{"x": {{"size": -1, "sha256": "{"0" * 64}"}}}}}}',
        "size",
    ),
    "a hash in capitals": (
        f'{{"format": "a", "images": 3, "loss": 1.0, "files": {{"x": {{"size": 0, "sha256": "{"A" * 64}"}}}}}}',
        "sha256",
    ),
    "a bomb of lists": ("[" * 100_000 + "]" * 100_000, "deeper"),
    "a list": ("[]", ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("case", DOCUMENTS)
def test_a_signed_document_of_another_form_is_refused(sent, key, case):
    text, reason = DOCUMENTS[case]
    (sent / NAME).write_text(text)
    (sent / f"{NAME}.sig").write_bytes(signing.sign_here(text.encode(), key, signing.BUNDLE))
    with pytest.raises(UserError) as raised:
        read(sent)
    shown = str(raised.value)
    assert reason in shown and shown.isprintable() and shown.isascii()


@pytest.mark.parametrize("loss", [-0.00012345678901234567, -1.2345678901234567e-300, 1.7976931348623157e308])
def test_every_float_crosses_as_it_is(key, tmp_path, loss):
    document = Letter("letter 1", 3, loss)
    write_folder(tmp_path / "sent", NAME, document, {}, key, signing.BUNDLE)
    assert read(tmp_path / "sent")[0] == document


def test_a_file_that_grows_meanwhile_is_refused(sent, tmp_path):
    document, _ = read(sent)
    (tmp_path / "inbox").mkdir()

    def grow(size):
        with open(sent / "weights.safetensors", "ab") as file:
            file.write(b"more")

    first = {"weights.safetensors": document.files["weights.safetensors"]}
    # The first block has all that was listed; what follows is never read as a part of it.
    receive(sent, NAME, document.files | first, tmp_path / "inbox", lambda size: None)
    (tmp_path / "again").mkdir()
    with pytest.raises(UserError, match="instead of|others were signed"):
        receive(sent, NAME, dict(reversed(document.files.items())), tmp_path / "again", grow)


def test_a_full_disk_is_an_error_of_the_system_and_leaves_the_sender_alone(sent, tmp_path):
    before = {path.name: path.read_bytes() for path in sent.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            take(sent, tmp_path / "inbox")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name: path.read_bytes() for path in sent.iterdir()} == before
