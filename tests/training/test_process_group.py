"""Ranks that wait for others."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.helpers import REPOSITORY

JOIN = """
import sys
from pathlib import Path
from hpcddm.runs.run_dir import RunDir
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.stopping import StopFlag
from hpcddm.jobs.unit import Unit
from hpcddm.training import process_group
run, rank = RunDir(Path(sys.argv[1])), int(sys.argv[2])
stop = StopFlag()
stop.install()
first = open_attempt(run.logs("train/x"), Ranks(0, 0, 2, 1, "me"))
ranks = Ranks(rank, rank, 2, 1, "me")
print("ready", flush=True)
process_group.join(Unit("train/x", run, ranks, first, None, stop, {}, "f"))
"""


@pytest.mark.parametrize("rank, outcome", [(0, "stopped"), (1, None)])
def test_a_rank_that_waits_for_others_leaves_when_told_to_stop(tmp_path, rank, outcome):
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", JOIN, str(tmp_path), str(rank)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout.readline() == "ready\n"
    attempt = tmp_path / "logs/train/x/attempt-1"
    deadline = time.time() + 30
    while rank == 0 and not (attempt / "rendezvous.json").exists() and time.time() < deadline:
        time.sleep(0.05)
    time.sleep(1)  # Now rank 0 is inside init_process_group, which runs no Python.
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=15) == 75
    if outcome:
        ended = json.loads((attempt / "ended.json").read_text())
        assert (ended["outcome"], ended["reason"]) == (outcome, "SIGTERM, while it waited for the other ranks")
    else:
        assert not (attempt / "ended.json").exists()
