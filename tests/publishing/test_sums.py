"""SHA256SUMS of a published folder and its signature: whoever changes a byte is found out, with and without us."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hpcddm.exchange import ssh_keys
from tests.helpers import hpcddm
from tests.publishing.hostile import FIRST, Change, in_place_of, linked
from tests.publishing.made_runs import made_run, published, refusal_of

SIX = ("README.md", "ensemble.json", FIRST, "networks/router.safetensors", "partition.safetensors", "samples/top-1.png")


@pytest.fixture(scope="module")
def signed(tmp_path_factory) -> Path:
    """A folder that its maker has signed; the key is beside it."""
    folder = tmp_path_factory.mktemp("signed")
    ssh_keys.make_key(folder / "key")
    return published(made_run(folder / "run"), folder / "ensemble", "--sign", folder / "key")


@pytest.fixture
def sent(signed, tmp_path) -> Path:
    """An own copy of the signed folder."""
    return Path(shutil.copytree(signed, tmp_path / "sent"))


def verified_by_openssh(folder: Path, key: Path) -> bool:
    signers = folder.parent / "signers"
    signers.write_text(f"maker {ssh_keys.read_public(key).text}\n")
    command = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", "maker", "-n", "ensemble@hpcddm"]
    sums = (folder / "SHA256SUMS").read_bytes()
    done = subprocess.run([*command, "-s", folder / "SHA256SUMS.sig"], input=sums, capture_output=True, check=False)
    return done.returncode == 0


def test_ssh_keygen_and_sha256sum_agree(sent, signed):
    key = signed.parent / "key"
    done = hpcddm("site", "verify", sent, "--fingerprint", ssh_keys.read_public(key).fingerprint)
    assert done.exit_code == 0 and "ensemble tiny, signed by" in done.output, done.output
    assert verified_by_openssh(sent, key)
    assert subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=sent, check=False).returncode == 0
    with open(sent / "SHA256SUMS", "a") as file:
        file.write(f"{'0' * 64}  x\n")
    assert not verified_by_openssh(sent, key)
    assert "is missing" in refusal_of(hpcddm("site", "verify", sent), 1)


@pytest.mark.parametrize("name", SIX)
def test_a_changed_byte_is_named(sent, name):
    content = bytearray((sent / name).read_bytes())
    content[len(content) // 2] ^= 1
    (sent / name).write_bytes(content)
    assert f"{sent / name}: its bytes are not those of SHA256SUMS" in refusal_of(hpcddm("site", "verify", sent), 1)


def test_another_key_another_purpose_and_no_signature(sent, signed):
    ssh_keys.make_key(sent.parent / "other")
    fingerprint = ssh_keys.read_public(sent.parent / "other").fingerprint
    said = refusal_of(hpcddm("site", "verify", sent, "--fingerprint", fingerprint), 1)
    assert "do not trust it" in said
    (sent / "SHA256SUMS.sig").unlink()
    assert "nobody vouches for it" in refusal_of(hpcddm("site", "verify", sent), 1)


def test_more_and_fewer_files_are_named_and_what_the_hub_leaves_is_not(sent):
    (sent / ".gitattributes").touch()
    (sent / ".cache").mkdir()
    assert hpcddm("site", "verify", sent).exit_code == 0
    (sent / "networks" / "more.bin").touch()
    assert "networks/more.bin is not listed" in refusal_of(hpcddm("site", "verify", sent), 1)
    (sent / "networks" / "more.bin").unlink()
    (sent / FIRST).unlink()
    assert f"{FIRST}: is missing" in refusal_of(hpcddm("site", "verify", sent), 1)


def unsigned_sums(content: str) -> Change:
    return lambda folder: (folder / "SHA256SUMS").write_text(content)


def deep(folder: Path) -> None:
    (folder / "/".join("a" * 40)).mkdir(parents=True)


LINE = f"{'0' * 64}  "
SUMS = {
    "a path that leads out": (unsigned_sums(f"{LINE}../x\n"), "is not the sum of one file"),
    "an absolute path": (unsigned_sums(f"{LINE}/etc/passwd\n"), "is not the sum of one file"),
    "an escape": (unsigned_sums(f"{LINE}\x1b[2J\n"), "is not the sum of one file"),
    "a file twice": (unsigned_sums(f"{LINE}README.md\n" * 2), "is not the sum of one file"),
    "no text": (lambda folder: (folder / "SHA256SUMS").write_bytes(b"\xff" * 100), "is not the sum of one file"),
    "nothing": (unsigned_sums(""), "is not listed"),
    "10 MB": (unsigned_sums("x" * 10_000_000), "has more than"),
    "a link": (linked("SHA256SUMS"), "neither a file nor a folder"),
    "a pipe": (in_place_of(FIRST, os.mkfifo), "neither a file nor a folder"),
    "a signature that is none": (lambda folder: (folder / "SHA256SUMS.sig").write_text("x"), "SHA256SUMS: "),
    "forty folders in each other": (deep, "folders in each other"),
    "a file with an escape": (lambda folder: (folder / "\x1b[2J").touch(), "is not listed in SHA256SUMS"),
    "a file that is no text": (lambda folder: Path(os.fsdecode(bytes(folder) + b"/\xff")).touch(), "is not listed"),
}


@pytest.mark.parametrize("case", SUMS)
def test_sums_that_are_not_those_of_a_folder(sent, case):
    change, reason = SUMS[case]
    change(sent)
    said = refusal_of(hpcddm("site", "verify", sent), 1)
    assert reason in said and len(said) < 1000, said
