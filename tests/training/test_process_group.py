"""Ranks that wait for others."""

import json
import os
import signal
import subprocess
import sys
import time

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


def test_ranks_that_wait_for_others_leave_when_told_to_stop(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    commands = [[sys.executable, "-c", JOIN, str(tmp_path / str(rank)), str(rank)] for rank in range(2)]
    waiting = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True, env=environment) for one in commands]
    assert [process.stdout.readline() for process in waiting] == ["ready\n"] * 2
    first, second = (tmp_path / str(rank) / "logs/train/x/attempt-1" for rank in range(2))
    deadline = time.time() + 30
    while not (first / "rendezvous.json").exists() and time.time() < deadline:
        time.sleep(0.05)
    time.sleep(1)  # Now rank 0 is inside init_process_group, which runs no Python.
    for process in waiting:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(timeout=15) for process in waiting] == [75] * 2
    ended = json.loads((first / "ended.json").read_text())
    assert (ended["outcome"], ended["reason"]) == ("stopped", "SIGTERM, while it waited for the other ranks")
    assert not (second / "ended.json").exists()
