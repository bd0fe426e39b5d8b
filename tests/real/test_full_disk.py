"""The disk fills up, or turns read-only, in the middle of a training: what was saved stays, and room brings it back."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.helpers import DATA_STAGES
from tests.whole_runs import hpcddm

pytestmark = pytest.mark.root
KEY = "train/expert-00"


@pytest.fixture
def disk(tmp_path):
    """A disk of 96 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "none", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def run(disk, finished):
    """The finished run on the small disk, its first expert not yet trained; it saves at every step."""
    run = disk / "run"
    for stage in (*DATA_STAGES, "code"):
        shutil.copytree(finished / stage, run / stage)
    experiment = json.loads((finished / "experiment.json").read_text())
    experiment["experts"]["training"]["checkpoint_minutes"] = 1e-6
    (run / "experiment.json").write_text(json.dumps(experiment))
    return run


def states(run: Path) -> list[Path]:
    return sorted((run / KEY / "state").glob("images-*/state.json"))


def start(run: Path) -> subprocess.Popen:
    """Train until a state has been saved, and halt there: what comes next must not be a race."""
    command = [sys.executable, "-m", "hpcddm.cli", "run-unit", run, KEY, "--ranks", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    deadline = time.time() + 120
    while not states(run) and process.poll() is None and time.time() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()[0]
    signal_all(process, signal.SIGSTOP)
    return process


def signal_all(process: subprocess.Popen, number: int) -> None:
    """Signal the command and every process that it started."""
    leader = psutil.Process(process.pid)
    for each in (leader, *leader.children(recursive=True)):
        each.send_signal(number)


def fill(disk: Path, left: int) -> Path:
    """Leave `left` bytes."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(disk).free - left))
    return ballast


def complete(run: Path, finished: Path) -> None:
    assert states(run), "what had been saved before is gone"
    done = hpcddm("run-unit", run, KEY, "--ranks", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (run / KEY / "weights.safetensors").read_bytes() == (finished / KEY / "weights.safetensors").read_bytes()
    log = (sorted((run / "logs" / KEY).glob("attempt-*"))[-1] / "rank0.log").read_text()
    assert f"{KEY}: 0 of" not in log, "it began anew instead of continuing"


def test_a_full_disk_is_named_with_its_bytes_and_room_brings_the_training_back(run, disk, finished):
    # Room for the first state, which takes six times the weights' bytes, but not for the snapshots as well.
    ballast = fill(disk, left=8 * (finished / KEY / "weights.safetensors").stat().st_size)
    process = start(run)
    signal_all(process, signal.SIGCONT)
    said = process.communicate(timeout=120)[0]
    # What comes first after the disk is full: a state, a snapshot, or the weights of the end.
    assert "cannot save the training state" in said or "cannot write the weights" in said, said
    assert process.returncode == 1 and f"{run}/{KEY}/" in said and "bytes are free" in said, said
    ballast.unlink()
    complete(run, finished)


def test_a_disk_that_turns_read_only_loses_nothing(run, finished):
    process = start(run)
    state = run / KEY / "state"
    subprocess.run(["mount", "--bind", state, state], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", state], check=True)
    signal_all(process, signal.SIGCONT)
    said = process.communicate(timeout=120)[0]
    subprocess.run(["umount", "--lazy", state], check=True)
    assert process.returncode == 1 and "cannot save the training state" in said and "Read-only" in said, said
    complete(run, finished)
