"""Publishing is refused, cut off or complete: never half, and never with anything left beside it."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

import hpcddm
from hpcddm.runs import contracts as run_contracts
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from tests.exchange.agreed_runs import Agreed, agreed_runs
from tests.publishing.made_runs import content, made_run, publish, published, refusal_of

CALLS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "shutil.copyfile")
"""Audited calls by which publishing goes on; of `open`, only those for writing."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> RunDir:
    """A complete run of two experts."""
    return made_run(tmp_path_factory.mktemp("made") / "run")


def refused(run: RunDir, output: Path, *options: object) -> str:
    """The line that says why nothing is published; nothing is left of it."""
    before = sorted(output.parent.rglob("*"))
    said = refusal_of(publish(run, output, *options))
    assert sorted(output.parent.rglob("*")) == before
    return said


REFUSED = [
    ("--strategies best", "--strategies best: unknown; valid names: "),
    ("--strategies top-1,", "--strategies : unknown"),
    ("--strategies oracle", "--strategies oracle: reads clusters of images"),
    ("--strategies top-3", "top-3 needs 3 experts"),
    ("--without train/expert-07", "--without train/expert-07: not an expert of this run"),
    ("--without train/monolith", "not an expert of this run; valid names: train/expert-00, train/expert-01"),
    ("--experts 0,2", "--experts 0,2: needs numbers of experts, 0 to 1"),
    ("--experts -1", "--experts -1: needs numbers of experts, 0 to 1"),
    ("--experts none", "--experts none: needs numbers"),
    ("--without train/expert-00 --without train/expert-01", "leaves no expert"),
    ("--license \x1b[2J", "--license: needs one line of at most 400 printable"),
    (f"--terms {'x' * 401}", "--terms: needs one line"),
    ("--sign /nowhere/key", "/nowhere/key is missing; next: hpcddm site key SITE"),
]


@pytest.mark.parametrize("options, message", REFUSED)
def test_what_is_asked_for_is_not_there(made, tmp_path, options, message):
    assert message in refused(made, tmp_path / "out", *options.split(" "))


def test_an_output_that_cannot_be(made, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    assert "--output" in refused(made, tmp_path / "full") and (tmp_path / "full/file").exists()
    assert "is not empty" in refused(made, tmp_path / "full/file")
    done = publish(made, tmp_path / "full/file/out")
    assert done.exit_code == 1 and "cannot be written" in done.stderr and done.stderr.count("\n") == 1
    assert not isinstance(done.exception, OSError) and list(tmp_path.rglob("*")) == [
        tmp_path / "full",
        tmp_path / "full/file",
    ]


def test_a_unit_that_is_missing_stale_or_damaged_is_named(tmp_path):
    run = made_run(tmp_path / "a/run", without=("train/expert-01",))
    said = refused(run, tmp_path / "out")
    assert "train/expert-01 is missing" in said and "add --without train/expert-01" in said
    run = made_run(tmp_path / "b/run", without=("report/all",))
    assert "report/all is missing" in refused(run, tmp_path / "out")
    run = made_run(tmp_path / "c/run")
    before = manifest.read(run.unit("train/expert-00"))
    manifest.publish(run.unit("train/expert-00"), replace(before, settings=before.settings | {"seed": 7}))
    assert "train/expert-00 is stale" in refused(run, tmp_path / "out")
    run = made_run(tmp_path / "d/run")
    weights = run.unit("router/all") / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    done = publish(run, tmp_path / "out")
    assert done.exit_code == 1 and "router" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists() and not (tmp_path / ".out.incomplete").exists()


@pytest.fixture(scope="module")
def agreed(tmp_path_factory) -> Agreed:
    """Two runs of one contract."""
    return agreed_runs(tmp_path_factory.mktemp("agreed"))


def test_terms_of_a_contract_must_be_repeated(agreed, made, tmp_path, monkeypatch):
    terms = "for research; ask before you publish"
    data = replace(agreed.contract.data, terms=terms)
    monkeypatch.setattr(
        "hpcddm.publishing.published_units.run_contract", lambda run: replace(agreed.contract, data=data)
    )
    assert run_contracts.run_contract(agreed.home) is not None
    assert f"--terms '{terms}'" in refused(made, tmp_path / "out")
    assert "--terms" in refused(made, tmp_path / "out", "--terms", "other terms")
    folder = published(made, tmp_path / "out", "--terms", terms)
    assert (hpcddm.open(folder).document.license, hpcddm.open(folder).document.terms) == ("CC0", terms)


def killed(run: RunDir, output: Path, calls: int) -> bool:
    """Publish in a process that is killed before one of its calls; False if it came to its end."""

    def die(event: str, arguments: tuple) -> None:
        nonlocal calls
        is_write = event != "open" or bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if event in CALLS and is_write:
            calls -= 1
            if calls < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        sys.addaudithook(die)
        os._exit(publish(run, output).exit_code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def test_a_killed_publication_is_absent_or_complete_and_repeating_it_completes_it(made, tmp_path):
    expected = content(published(made, tmp_path / "whole"))
    moments = 0
    for calls in count(0, 2):
        output = tmp_path / f"out-{calls}"
        was_killed = killed(made, output, calls)
        assert not output.exists() or content(output) == expected
        if not was_killed:
            break
        moments += 1
        if not output.exists() and moments % 4 == 0:
            assert content(published(made, output)) == expected
    assert moments >= 20


def test_two_at_once(made, tmp_path):
    """The second is refused while the first writes, and the first is not disturbed."""
    staged = tmp_path / ".out.incomplete"
    staged.mkdir()
    descriptor = os.open(staged, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (staged / "of the first").touch()
    done = publish(made, tmp_path / "out")
    assert done.exit_code == 1 and "is being written by another process; wait for that" in done.stderr
    assert (staged / "of the first").exists()
    os.close(descriptor)
    assert "of the first" not in content(published(made, tmp_path / "out"))
    assert not staged.exists()


@pytest.mark.root
def test_a_full_disk_is_said_in_one_line_and_nothing_is_left(made, tmp_path):
    size = sum(len(one) for one in content(published(made, tmp_path / "whole")).values())
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size // 4 * 3}", "none", disk], check=True)
    try:
        done = publish(made, disk / "out")
        assert done.exit_code == 1 and done.stderr.count("\n") == 1 and "No space left" in done.stderr, done.output
        assert list(disk.iterdir()) == []
        (disk / "ballast").write_bytes(bytes(shutil.disk_usage(disk).free - 5000))
        done = publish(made, disk / "out")
        assert done.exit_code == 2 and "are needed" in done.stderr
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
