"""Folders that travel between sites: what was signed arrives, and nothing else does."""

from dataclasses import dataclass, field

import pytest

from hpcddm.errors import UserError
from hpcddm.exchange import signing, ssh_keys
from hpcddm.exchange.signed_folder import FileName, ListedFile, read_document, receive, write_folder

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


def test_writing_again_gives_the_same_bytes(sent, tmp_path, key):
    before = {path.name: path.read_bytes() for path in sent.iterdir()}
    paths = {name: tmp_path / f"own-{name}" for name in CONTENTS}
    write_folder(sent, NAME, Letter("letter 1", 3, 0.5), paths, key, signing.BUNDLE)
    assert {path.name: path.read_bytes() for path in sent.iterdir()} == before


def test_what_operating_systems_leave_is_passed_over_and_said(sent, tmp_path, capsys):
    for name in (".DS_Store", f"._{NAME}", "Thumbs.db", "desktop.ini", "._weights.safetensors"):
        (sent / name).symlink_to("/nowhere")
    (sent / "__MACOSX").mkdir()
    assert take(sent, tmp_path / "inbox") == CONTENTS
    said = f"passed over .DS_Store, ._{NAME}, ._weights.safetensors, Thumbs.db, __MACOSX, desktop.ini,"
    assert said in capsys.readouterr().err
    (sent / ".profile").touch()
    with pytest.raises(UserError, match=r"\.profile is not listed in what was signed; refused, remove it first"):
        take(sent, tmp_path / "again")


@pytest.mark.parametrize("loss", [-0.00012345678901234567, -1.2345678901234567e-300, 1.7976931348623157e308])
def test_every_float_crosses_as_it_is(key, tmp_path, loss):
    document = Letter("letter 1", 3, loss)
    write_folder(tmp_path / "sent", NAME, document, {}, key, signing.BUNDLE)
    assert read(tmp_path / "sent")[0] == document
