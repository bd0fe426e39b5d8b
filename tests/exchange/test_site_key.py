"""The key of a site, and the signed file that goes to the coordinator."""

import json
import shutil
import subprocess

import pytest

from hpcddm.errors import UserError
from hpcddm.exchange import signing, site_identity, ssh_keys
from hpcddm.exchange.site_identity import read_identity, write_identity
from tests.helpers import hpcddm


@pytest.fixture
def folder(tmp_path):
    """The folder that a site sends."""
    ssh_keys.make_key(tmp_path / "key")
    write_identity(tmp_path / "sent", "uni-b", tmp_path / "key")
    return tmp_path / "sent"


def test_the_verb_makes_a_key_once_and_shows_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    made, shown = hpcddm("site", "key", "uni-b"), hpcddm("site", "key", "uni-b")
    name, public = read_identity(tmp_path / "uni-b-key")
    assert sorted(path.name for path in (tmp_path / "uni-b-key").iterdir()) == ["site.json", "site.json.sig"]
    assert (made.exit_code, shown.exit_code, name) == (0, 0, "uni-b")
    assert f"fingerprint {public.fingerprint}" in made.output and f"fingerprint {public.fingerprint}" in shown.output
    assert made.output.startswith("made the key ") and shown.output.startswith("uses the key ")
    assert (tmp_path / ".ssh" / "hpcddm_ed25519").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / ".ssh").stat().st_mode & 0o777 == 0o700


def test_the_coordinator_verifies_what_came(folder, tmp_path):
    fingerprint = ssh_keys.read_public(tmp_path / "key").fingerprint
    done = hpcddm("site", "verify", folder)
    assert done.exit_code == 0 and f"signed by the key of uni-b, fingerprint {fingerprint}\ncompare " in done.output
    assert hpcddm("site", "verify", folder, "--fingerprint", fingerprint).exit_code == 0
    other = ssh_keys.make_key(tmp_path / "other").fingerprint
    done = hpcddm("site", "verify", folder, "--fingerprint", other)
    assert done.exit_code != 0 and f"has the fingerprint {fingerprint}; do not trust it" in done.output
    rewrite(folder, is_signed=False, site="uni-c")
    done = hpcddm("site", "verify", folder)
    assert done.exit_code != 0 and "the signature does not fit the file" in done.output


def test_another_key_does_not_replace_what_was_sent(folder, tmp_path):
    ssh_keys.make_key(tmp_path / "other")
    done = hpcddm("site", "key", "uni-b", "--key", tmp_path / "other", "--output", folder)
    assert done.exit_code != 0 and "is not overwritten; name another folder with --output" in done.output
    assert read_identity(folder)[1] == ssh_keys.read_public(tmp_path / "key")


def ssh_keygen(tmp_path, kind):
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", tmp_path / kind], check=True)


TOKEN = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIA== me@here"
FAULTY = {
    "rsa": (lambda folder: ssh_keygen(folder, "rsa"), "a key of the kind 'ssh-rsa' instead of ssh-ed25519"),
    "ecdsa": (lambda folder: ssh_keygen(folder, "ecdsa"), "a key of the kind 'ecdsa-sha2-nistp256' instead of"),
    "token": (lambda folder: (folder / "token.pub").write_text(TOKEN), "a key on a security token (sk-); such keys"),
    "prose": (lambda folder: (folder / "prose.pub").write_text("no key"), "not 'ssh-ed25519' and the base64 of a key"),
    "key": (lambda folder: (folder / "key").chmod(0o644), "too open"),
    "cut": (
        lambda folder: (
            shutil.copy(folder / "key.pub", folder / "cut.pub"),
            (folder / "cut").write_bytes((folder / "key").read_bytes()[:-1]),
            (folder / "cut").chmod(0o600),
        ),
        "its last line has no end: echo >> ",
    ),
}


@pytest.mark.skipif(not signing.openssh_signs(), reason="ssh-keygen cannot sign here")
@pytest.mark.parametrize("name", FAULTY)
def test_why_a_key_cannot_sign_is_said(folder, tmp_path, name):
    spoil, reason = FAULTY[name]
    spoil(tmp_path)
    done = hpcddm("site", "key", "uni-b", "--key", tmp_path / name, "--output", tmp_path / "out")
    assert done.exit_code == 1 and reason in done.output and "@@@" not in done.output and done.output.count("\n") == 1
    if name == "key":
        assert "chmod 600 " in done.output


def test_a_public_key_that_is_named_stands_for_its_private_one(folder, tmp_path):
    done = hpcddm("site", "key", "uni-b", "--key", tmp_path / "key.pub", "--output", tmp_path / "out")
    assert done.exit_code == 0 and read_identity(tmp_path / "out")[1] == ssh_keys.read_public(tmp_path / "key")


def test_halves_of_two_keys_are_named(folder, tmp_path):
    ssh_keys.make_key(tmp_path / "other")
    shutil.copy(tmp_path / "other.pub", tmp_path / "key.pub")
    with pytest.raises(UserError, match=r"are not one pair|cannot sign with this key"):
        write_identity(tmp_path / "again", "uni-b", tmp_path / "key")


def rewrite(folder, is_signed=True, **changes):
    values = json.loads((folder / "site.json").read_text()) | changes
    content = json.dumps({key: value for key, value in values.items() if value is not None}).encode()
    (folder / "site.json").write_bytes(content)
    if is_signed:
        (folder / "site.json.sig").write_bytes(signing.sign_here(content, folder.parent / "key", signing.SITE))


HOSTILE = {
    "a name of several lines": lambda folder: rewrite(folder, site="uni-b\nuni-c"),
    "a path as name": lambda folder: rewrite(folder, site="../uni-b"),
    "another format": lambda folder: rewrite(folder, format="hpcddm site 2"),
    "a key more": lambda folder: rewrite(folder, path="/etc"),
    "a key less": lambda folder: rewrite(folder, key=None),
    "a key with a comment": lambda folder: rewrite(
        folder, key=f"{ssh_keys.read_public(folder.parent / 'key').text} user@host"
    ),
    "no file": lambda folder: (folder / "site.json").unlink(),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_was_changed_on_the_way_is_refused_in_one_line(folder, case):
    HOSTILE[case](folder)
    with pytest.raises(UserError) as raised:
        read_identity(folder)
    assert "\n" not in str(raised.value) and str(folder) in str(raised.value) and str(raised.value).isprintable()


def test_a_file_that_another_site_signed_is_refused(folder, tmp_path):
    other = ssh_keys.make_key(tmp_path / "other")
    write_identity(tmp_path / "theirs", "uni-c", tmp_path / "other")
    rewrite(folder, key=other.text)
    shutil.copy(tmp_path / "theirs" / "site.json.sig", folder / site_identity.SIGNATURE)
    with pytest.raises(UserError, match="does not fit the file"):
        read_identity(folder)


def test_verify_of_a_folder_that_nobody_sent_names_what_it_lacks(folder, tmp_path):
    (folder / "site.json").unlink()
    done = hpcddm("site", "verify", folder)
    assert done.exit_code == 1 and "site.json (a key), contract.json, bundle.json and ensemble.json" in done.stderr
    assert f"error: {tmp_path / 'none'} is missing" in hpcddm("site", "verify", tmp_path / "none").stderr


@pytest.mark.parametrize("name", ["UNI", "-uni", "u" * 65])
def test_a_name_that_no_coordinator_accepts_makes_no_key(tmp_path, monkeypatch, name):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = hpcddm("site", "key", "--", name)
    assert done.exit_code != 0 and done.output.count("\n") == 1 and name in done.output, done.output
    assert list(tmp_path.iterdir()) == []
