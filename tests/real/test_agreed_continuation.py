"""A training under a contract is killed, and goes on from its own states, wherever its run is, and from no others."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from hpcddm.files import atomic
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.state_seals import state_seal
from hpcddm.runs.training_states import SEAL
from tests.exchange.collaboration import Collaboration
from tests.helpers import REPOSITORY
from tests.whole_runs import hpcddm

pytestmark = pytest.mark.long
KEY = "train/expert-01"
CHANGES = {"experts__training__images": 8000, "experts__training__snapshots": [32, 8000]}
CHANGES |= {"data__shards": 1, "data__heldout_shards": 1}
OFTEN = "experts.training.checkpoint_minutes=0.0005"


class Partner:
    """South of a collaboration, whose training takes seconds."""

    def __init__(self, folder: Path) -> None:
        self.made = Collaboration(folder / "agreed").make(**CHANGES)
        trust = ("--trust", self.made.fingerprint("north"), "--site", self.made.site("south"))
        self._command = ["submit", "--contract", self.made.contract, f"data.source.folder={self.made.images}", *trust]
        self._lists = folder / "lists"
        done = self.submit(self._lists, "expert_lists")
        assert done.returncode == 0, done.stdout + done.stderr

    def _words(self, run: Path, until: str) -> list[object]:
        return [*self._command, "--run-dir", run, OFTEN, "--until", until]

    def submit(self, run: Path, until: str = "train") -> subprocess.CompletedProcess:
        """Follow the contract, as a user would."""
        return hpcddm(*self._words(run, until), timeout=900)

    def prepared(self, run: Path) -> Path:
        """A run that has its lists, moved to where it is asked for."""
        return Path(shutil.copytree(self._lists, run))

    def started(self, run: Path, number: int) -> subprocess.Popen:
        """Begin to train in such a run; returns when there are so many states."""
        self.prepared(run)
        command = [sys.executable, "-m", "hpcddm.cli", *self._words(run, "train")]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(states(run)) < number and process.poll() is None:
            time.sleep(0.01)
        return process

    def interrupted(self, run: Path) -> Path:
        """Kill the training when it has saved two states, and before it the command, which would start it again."""
        process = self.started(run, 2)
        process.kill()
        process.wait()
        os.kill(json.loads((run / f"logs/{KEY}/attempt-1/owner.json").read_text())["pid"], signal.SIGKILL)
        assert states(run) and not (run / KEY / "manifest.json").exists()
        return run


def states(run: Path) -> list[Path]:
    return sorted((run / KEY / "state").glob("images-*/state.json"))


def job(run: Path) -> tuple[int, str]:
    """Run the training as a job does, without the checks of a submission."""
    command = [sys.executable, "-m", "hpcddm.jobs.entry", str(run / f"specs/{KEY}.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=REPOSITORY)
    log = max((run / "logs" / KEY).glob("attempt-*/rank0.log"), key=lambda path: path.stat().st_mtime)
    return done.returncode, log.read_text()


@pytest.fixture(scope="module")
def partner(tmp_path_factory):
    return Partner(tmp_path_factory.mktemp("south"))


@pytest.fixture(scope="module")
def killed(partner, tmp_path_factory):
    """A run whose training was killed; copy it before you change it."""
    return partner.interrupted(tmp_path_factory.mktemp("killed") / "run")


def scaled(state: Path) -> None:
    """Put other weights into a state, and let its description say so, as any sender can."""
    values = json.loads(state.read_text())
    for file in values["files"]:
        path = state.parent / file["name"]
        with open(path, "rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            metadata = json.loads(opened.read(size))["__metadata__"]
        save_file({name: 1.5 * tensor for name, tensor in load_file(path).items()}, path, metadata)
        file |= {"size": path.stat().st_size, "sha256": atomic.sha256(path)}
    atomic.write_json(state, values)


def test_a_killed_training_goes_on_in_the_moved_run_to_the_same_bits(partner, killed, tmp_path):
    run = Path(shutil.copytree(killed, tmp_path / "elsewhere/run"))
    saved = json.loads(states(run)[-1].read_text())
    seal = state_seal(RunDir(run), KEY)
    assert seal is not None and len(saved[SEAL]) == 64 and seal.holds(saved)
    done = partner.submit(run)
    assert done.returncode == 0, done.stdout + done.stderr
    log = (run / f"logs/{KEY}/attempt-2/rank0.log").read_text()
    assert int(re.search(r"(\d+) of \d+ images seen", log).group(1)) >= saved["images"], log
    whole = partner.prepared(tmp_path / "whole")
    assert partner.submit(whole).returncode == 0
    for name in ("weights.safetensors", "snapshots/images-000000000032.safetensors"):
        assert (run / KEY / name).read_bytes() == (whole / KEY / name).read_bytes()


def test_a_forged_state_stops_submission_and_job_with_one_line_and_nothing_is_trained(partner, killed, tmp_path):
    run = Path(shutil.copytree(killed, tmp_path / "run"))
    scaled(states(run)[-1])
    kept = {path: path.read_bytes() for path in (run / KEY).rglob("*") if path.is_file() and path.name != ".lease"}
    done = partner.submit(run)
    (line,) = [line for line in done.stderr.splitlines() if "not loaded" in line]
    assert done.returncode == 1 and f"{KEY}: your jobs have not saved the training state" in line
    assert "Traceback" not in done.stdout + done.stderr and line.isprintable()
    code, log = job(run)
    (line,) = [line for line in log.splitlines() if "not loaded" in line]
    assert code != 0 and line.startswith(f"failed: {KEY}: your jobs have not saved") and "Traceback" not in log
    assert kept == {path: path.read_bytes() for path in kept}
    # As the line says: without this one, training goes on from the state before.
    shutil.move(states(run)[-1].parent, tmp_path / "moved")
    before = json.loads(states(run)[-1].read_text())["images"] if states(run) else 0
    assert partner.submit(run).returncode == 0
    log = max((run / "logs" / KEY).glob("attempt-*/rank0.log")).read_text()
    assert f"{before} of " in log


def test_another_account_is_told_to_let_the_first_go_on(partner, killed, tmp_path, monkeypatch):
    run = Path(shutil.copytree(killed, tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody"))
    done = partner.submit(run)
    assert done.returncode == 1 and "go on with the account that began it, or move" in done.stderr
    assert f"{run / KEY / 'state'} away" in done.stderr and len(states(run)) == len(states(killed))


def test_a_snapshot_that_is_replaced_during_training_is_not_published(partner, tmp_path):
    run = tmp_path / "run"
    process, snapshot = partner.started(run, 1), run / KEY / "snapshots/images-000000000032.safetensors"
    # The first state may be older than the snapshot.
    while not snapshot.exists() and process.poll() is None:
        time.sleep(0.01)
    save_file({name: 1.5 * tensor for name, tensor in load_file(snapshot).items()}, tmp_path / "other")
    os.replace(tmp_path / "other", snapshot)
    assert process.wait() == 1
    log = (run / f"logs/{KEY}/attempt-1/rank0.log").read_text()
    assert f"failed: {snapshot}: is not what this unit wrote; remove it, then submit again" in log
    assert not (run / KEY / "manifest.json").exists()
