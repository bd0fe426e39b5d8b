"""A unit of a real submission whose process is killed: the same submission goes on with it."""

import json
import os
import signal
import subprocess
import sys
import time

from tests.helpers import write_experiment, write_source


def test_a_killed_unit_is_tried_again_and_its_submission_ends_well(tmp_path):
    write_source(tmp_path / "images")
    run = tmp_path / "run"
    command = (sys.executable, "-m", "hpcddm.cli", "submit", write_experiment(tmp_path, data__shards=1))
    command += ("--site", "embedded", "--until", "shard", "--run-dir", run)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as submitted:
        # An attempt is open: the process has begun its work.
        deadline = time.monotonic() + 60
        while not (owners := list(run.glob("logs/shard/*/*/owner.json"))) and time.monotonic() < deadline:
            time.sleep(0.002)
        os.kill(json.loads(owners[0].read_text())["pid"], signal.SIGKILL)
        output, _ = submitted.communicate(timeout=120)
    assert submitted.returncode == 0, output
    assert "the process died without a word; it is tried again" in output
    assert len(list(run.glob("shard/*/manifest.json"))) == 2
