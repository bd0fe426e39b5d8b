"""Imports that are cut off: half a bundle, a process killed at any moment, and a disk that is full."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hpcddm.exchange.bundle import FILE
from hpcddm.launch.collaboration.bundle_checks import imported_bundle
from hpcddm.runs import manifest
from hpcddm.runs.import_records import read_signed_bundle
from hpcddm.runs.run_dir import RunDir
from tests.exchange.agreed_runs import KEY, train
from tests.exchange.hostile import WEIGHTS, refusal_of, refused, tree
from tests.helpers import REPOSITORY

IMPORT = """
import sys
from hpcddm.cli import main
from hpcddm.commands.sites import site_import
from hpcddm.launch.collaboration import bundle_import
print("ready", flush=True)
sys.stdin.readline()
main(sys.argv[1:])
"""
"""The command, which waits for a line before it begins: then it takes little of a second."""


def start(home: RunDir, sent: Path, *options: str) -> subprocess.Popen:
    command = [sys.executable, "-c", IMPORT, "site", "import", str(home.root), str(sent), *options]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def begin(process: subprocess.Popen) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("count", [5, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_killed_at_any_moment_a_run_is_as_before_or_after(runs, tmp_path, count, is_replaced):
    sent = runs.pack("sent")
    if is_replaced:
        assert runs.take(sent).exit_code == 0
        train(runs, runs.partner, seed=2)
        sent = runs.pack("newer")
    options, before, (after, _) = (
        ["--replace"] * is_replaced,
        manifest.read(runs.home.unit(KEY)),
        read_signed_bundle(sent),
    )
    whole = replace(runs, home=RunDir(shutil.copytree(runs.home.root, tmp_path / "whole")))
    process, started = start(whole.home, sent, *options), time.monotonic()
    begin(process)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    seconds, killed = time.monotonic() - started, 0
    for number in range(count):
        own = replace(runs, home=RunDir(shutil.copytree(runs.home.root, tmp_path / f"home-{number}")))
        process = start(own.home, sent, *options)
        begin(process)
        time.sleep(random.Random(number).uniform(0, seconds))
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        present = manifest.read(own.home.unit(KEY))
        assert present == before or imported_bundle(own.home, KEY) == after
        assert present is None or manifest.find_damage(own.home.unit(KEY), present) is None
        assert own.take(sent, *options).exit_code == 0 and imported_bundle(own.home, KEY) == after
        assert [path.name for path in own.home.imports.iterdir()] == ["expert-01"]
        shutil.rmtree(own.home.root)
    assert killed


def test_half_a_bundle_is_completed_file_by_file(runs, tmp_path):
    sent, half = runs.pack("sent"), tmp_path / "half"
    half.mkdir()
    for name in (FILE, f"{FILE}.sig", *sorted(read_signed_bundle(sent)[0].files)):
        refused(runs, half, f"{name} is missing")
        # A file that is still on its way has its name already.
        content = (sent / name).read_bytes()
        (half / name).write_bytes(content[: len(content) // 2])
        refused(runs, half, name if name.endswith("safetensors") else "")
        shutil.copy(sent / name, half)
    assert runs.take(half).exit_code == 0 and imported_bundle(runs.home, KEY).number == 1


@pytest.fixture
def small(tmp_path):
    """A file system of two MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting needs root")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_full_disk_leaves_the_run_as_it_was(runs, small, monkeypatch, is_replaced):
    sent, options = runs.pack("sent"), ["--replace"] * is_replaced
    if is_replaced:
        assert runs.take(sent).exit_code == 0
        train(runs, runs.partner, seed=2)
        sent = runs.pack("newer")
    # Room is looked for first; here others take it meanwhile.
    monkeypatch.setattr("hpcddm.launch.collaboration.bundle_checks.SPARE_BYTES", -(1 << 40))
    own = replace(runs, home=RunDir(shutil.copytree(runs.home.root, small / "home")))
    before, size = tree(own.home), sum(path.stat().st_size for path in sent.iterdir())
    filler = small / "filler"
    for spare in range(0, size + (64 << 10), 16 << 10):
        filler.unlink(missing_ok=True)
        free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
        filler.write_bytes(bytes(max(0, free - spare)))
        done = own.take(sent, *options)
        if done.exit_code == 0:
            break
        assert refusal_of(done) and tree(own.home) == before, spare
        assert not own.home.imports.exists() or is_replaced or list(own.home.imports.iterdir()) == []
    assert spare > 0 and imported_bundle(own.home, KEY) == read_signed_bundle(sent)[0]
    assert own.home.output(KEY, WEIGHTS).read_bytes() == (sent / WEIGHTS).read_bytes()
