"""Publishing: what is refused, what is left after an interruption, what the card and the signature say."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

import hpcddm
from hpcddm.errors import UserError
from hpcddm.evaluation.metrics import columns
from hpcddm.exchange import ssh_keys
from hpcddm.exchange.contract import AgreedData
from hpcddm.publishing import published_units
from hpcddm.runs.run_dir import RunDir
from tests import helpers
from tests.publishing.made_runs import FIGURES, content, document, made_run, publish, published, refusal_of

OTHERS = {"evaluate__strategies": ["top-1", "oracle"], "data__class_names": ["ant", "[b](http://x)", "<i>", "d|e"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDir:
    """A complete run."""
    return made_run(tmp_path_factory.mktemp("made") / "run", **OTHERS)


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> Path:
    """A private key of a site."""
    path = tmp_path_factory.mktemp("keys") / "own"
    ssh_keys.make_key(path)
    return path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--strategies", "top-9"), ("--strategies top-9", "valid names")),
        (("--strategies", "oracle"), ("--strategies oracle", "only the run has")),
        (("--without", "train/expert-07"), ("--without train/expert-07", "train/expert-00, train/expert-01")),
        (("--without", "train/expert-00", "--without", "train/expert-01"), ("leaves no expert",)),
        (("--experts", "0,7"), ("--experts 0,7", "0 to 1")),
        (("--experts", "a"), ("--experts a", "0 to 1")),
        (("--sign", "/nowhere/key"), ("/nowhere/key is missing", "hpcddm site key SITE")),
        (("--terms", "\x1b[2J"), ("terms", "printable")),
        (("--license", "x" * 500), ("license",)),
    ],
)
def test_a_slip_in_an_option_is_said_and_leaves_nothing(run, tmp_path, options, words):
    said = refusal_of(publish(run, tmp_path / "ensemble", *options))
    assert all(word in said for word in words) and [*tmp_path.iterdir()] == []


def test_a_place_that_cannot_be_written_is_named(run, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    for output in (tmp_path / "file", tmp_path / "full"):
        assert f"--output {output}: is not empty; name a new folder" in refusal_of(publish(run, output))
    assert str(tmp_path / "file/in") in refusal_of(publish(run, tmp_path / "file/in"))
    assert content(tmp_path) == {"file": b"mine", "full/mine": b"mine"}


@pytest.mark.parametrize("missing", ["train/expert-01", "router/all", "report/all"])
def test_what_is_incomplete_is_named(tmp_path, missing):
    said = refusal_of(publish(made_run(tmp_path / "run", without=(missing,)), tmp_path / "ensemble"))
    assert missing in said and "next: hpcddm status" in said and not (tmp_path / "ensemble").exists()
    assert ("--without train/expert-01" in said) == (missing == "train/expert-01")


def test_damaged_weights_are_not_published(tmp_path):
    run = made_run(tmp_path / "run")
    path = run.unit("train/expert-01") / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert "weights.safetensors: its bytes are not those of its manifest" in refusal_of(publish(run, tmp_path / "out"))
    assert [entry.name for entry in tmp_path.iterdir() if "out" in entry.name] == []


def test_terms_of_a_contract_are_repeated(run, monkeypatch):
    """A mock of the contract; the terms of a signed one are read in tests/exchange."""
    data = AgreedData("0" * 64, 1, 1, "CC0", "no publication before 2030")
    contract = type("Contract", (), {"data": data})()
    monkeypatch.setattr(published_units, "run_contract", lambda run: contract)
    with pytest.raises(
        UserError, match="its contract has terms, which may forbid a publication.*--terms 'no publication before 2030'"
    ):
        published_units.agreed_terms(run, None, None)
    assert published_units.agreed_terms(run, None, data.terms) == ("CC0", data.terms)


def is_killed(run: RunDir, output: Path, changes: int) -> bool:
    """Publish in a process that is killed before its next change of the disk after so many; False if never."""
    child = os.fork()
    if not child:
        left = changes

        def die(event, arguments):
            nonlocal left
            if event in ("os.rename", "os.mkdir", "os.chmod") or event == "open" and arguments[2] & os.O_WRONLY:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(die)
        os._exit(publish(run, output).exit_code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def test_killed_at_any_moment_there_is_a_whole_folder_or_none(run, tmp_path):
    output, whole, kills = tmp_path / "ensemble", content(published(run, tmp_path / "whole")), 0
    for changes in count(0, 2):
        if not is_killed(run, output, changes):
            break
        kills += 1
        assert not output.exists() or content(output) == whole
        shutil.rmtree(output, ignore_errors=True)
    assert kills >= 20 and content(output) == whole
    # What kills have left is gone, too.
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ensemble", "whole"]


@pytest.mark.root
def test_a_full_disk_is_said_and_leaves_nothing(run, tmp_path, monkeypatch):
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60k", "none", place], check=True)
    try:
        assert "free, and" in refusal_of(publish(run, place / "ensemble"))
        monkeypatch.setattr(published_units, "size_of", lambda *given: 0)
        assert f"{place / 'ensemble'}: cannot be written (No space left" in refusal_of(publish(run, place / "ensemble"))
        assert [*place.iterdir()] == []
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_of_two_that_publish_at_once_one_waits(run, tmp_path):
    staged = tmp_path / ".ensemble.incomplete"
    staged.mkdir()
    descriptor = os.open(staged, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert "is being written by another process" in refusal_of(publish(run, tmp_path / "ensemble"))
    os.close(descriptor)
    published(run, tmp_path / "ensemble")


@pytest.fixture(scope="module")
def signed(run, key, tmp_path_factory) -> Path:
    """A signed folder."""
    return published(run, tmp_path_factory.mktemp("signed") / "ensemble", "--sign", key, "--license", "CC-BY-4.0")


def openssh_verifies(folder: Path, key: Path, scratch: Path) -> bool:
    kind, own, *_ = ssh_keys.public_file(key).read_text().split()
    (scratch / "allowed").write_text(f'site namespaces="ensemble@hpcddm" {kind} {own}\n')
    command = ["ssh-keygen", "-Y", "verify", "-f", scratch / "allowed", "-I", "site", "-n", "ensemble@hpcddm"]
    sums = (folder / "SHA256SUMS").read_bytes()
    done = subprocess.run([*command, "-s", folder / "SHA256SUMS.sig"], input=sums, capture_output=True, check=False)
    return done.returncode == 0


def test_openssh_and_we_agree_about_a_signature(signed, key, tmp_path):
    folder = shutil.copytree(signed, tmp_path / "ensemble")
    done = helpers.hpcddm("site", "verify", folder, "--fingerprint", ssh_keys.read_public(key).fingerprint)
    assert done.exit_code == 0 and "ensemble tiny, signed by" in done.output and openssh_verifies(folder, key, tmp_path)
    assert subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=folder, check=False).returncode == 0
    sums = (folder / "SHA256SUMS").read_text()
    (folder / "SHA256SUMS").write_text(sums.replace(sums[:64], "0" * 64))
    assert not openssh_verifies(folder, key, tmp_path)
    assert refusal_of(helpers.hpcddm("site", "verify", folder))


def test_one_flipped_bit_anywhere_is_named(signed, tmp_path):
    folder = shutil.copytree(signed, tmp_path / "ensemble")
    for name, before in content(folder).items():
        middle = len(before) // 2
        (folder / name).write_bytes(before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :])
        said = refusal_of(helpers.hpcddm("site", "verify", folder))
        assert (name if name != "SHA256SUMS.sig" else "SHA256SUMS") in said, said
        (folder / name).write_bytes(before)
    assert helpers.hpcddm("site", "verify", folder).exit_code == 0


def test_files_that_nobody_signed_are_named(signed, run, tmp_path):
    folder = shutil.copytree(signed, tmp_path / "ensemble")
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("what a hub leaves")
    assert helpers.hpcddm("site", "verify", folder).exit_code == 0
    (folder / "networks/more").write_text("")
    assert "networks/more is not listed" in refusal_of(helpers.hpcddm("site", "verify", folder))
    (folder / "networks/more").unlink()
    (folder / "networks/router.safetensors").unlink()
    assert "router.safetensors: is missing" in refusal_of(helpers.hpcddm("site", "verify", folder))
    unsigned = published(run, tmp_path / "unsigned")
    assert "nobody vouches for it" in refusal_of(helpers.hpcddm("site", "verify", unsigned))


def test_the_card_has_the_header_of_the_hub_and_the_figures_of_the_report(signed):
    text = (signed / "README.md").read_text()
    header = yaml.safe_load(text.split("---")[1])
    assert header["license"] == "cc-by-4.0" and header["pipeline_tag"] == "unconditional-image-generation"
    assert ModelCard.load(signed / "README.md").data.to_dict() == header
    rows = {row[0]: row for row in (line.strip("| ").split(" | ") for line in text.splitlines() if line[:2] == "| ")}
    shown = {metric.title: metric for metric in columns()}
    for title in ("FD", "KID", "classifier agrees"):
        cell = rows["top-1"][rows["arm"].index(title)]
        assert cell.split(" ")[0] == shown[title].text(FIGURES[shown[title].key]), cell
    assert r"12.50 \[11.00, 14.00\]" in rows["top-1"] and rows["top-1"][-1] == r"1.2e\+07"


def test_another_license_is_named_and_markup_is_shown_as_it_is(tmp_path):
    run = made_run(tmp_path / "run", remark="<script>x</script> | *a* \x1b[2J")
    folder = published(run, tmp_path / "out", "--license", "My licence [v2](http://x)", "--terms", "<b>only</b> | here")
    text = (folder / "README.md").read_text()
    header = yaml.safe_load(text.split("---")[1])
    assert header["license"] == "other" and header["license_name"] == "My licence [v2](http://x)"
    body = text.split("---", 2)[2]
    assert r"\<b\>only\</b\> \| here" in body and "<b>" not in body.replace(r"\<b\>", "")
    assert "<script>" not in body.replace(r"\<script\>", "") and "\x1b" not in body
    assert not re.search(r"(?<!\\)\]\(http", body)


def test_a_folder_holds_no_path_and_no_name_of_its_maker(signed, run, tmp_path):
    everything = b"".join(content(signed).values())
    assert not any(word.encode() in everything for word in (str(run.root), str(run.root.parent), os.uname().nodename))
    assert document(signed)["experiment"]["data"]["source"]["folder"] == "not-published"
    assert hpcddm.open(signed).sample(1, classes=[0]).shape == (1, 8, 8, 1)
