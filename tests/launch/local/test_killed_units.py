"""A unit of a real submission whose process is killed: the same submission goes on with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers import write_experiment, write_source


def ranks_of(run: Path) -> list[int]:
    """List the processes of the units of a run."""
    words = {int(path.parent.name): path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()}
    return [pid for pid, line in words.items() if b"hpcddm.jobs.entry" in line and f"{run}/specs/".encode() in line]


def test_a_killed_unit_is_tried_again_and_its_submission_ends_well(tmp_path):
    write_source(tmp_path / "images")
    run = tmp_path / "run"
    command = (sys.executable, "-m", "hpcddm.cli", "submit", write_experiment(tmp_path, data__shards=1))
    command += ("--site", "embedded", "--until", "shard", "--run-dir", run)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as submitted:
        # An attempt is open: the process has begun its work.
        deadline = time.monotonic() + 60
        while not any(run.glob("logs/shard/*/*")) and time.monotonic() < deadline:
            time.sleep(0.002)
        for pid in ranks_of(run):
            os.kill(pid, signal.SIGKILL)
        output, _ = submitted.communicate(timeout=120)
    assert submitted.returncode == 0, output
    assert "the process died without a word; it is tried again" in output
    assert len(list(run.glob("shard/*/manifest.json"))) == 2
