"""Saves that end at any of their calls to the file system: the newest whole state is always found."""

import json
import os
import subprocess
import sys

from tests.helpers import REPOSITORY


def killed(folder, saves):
    """What killed.py prints."""
    command = [sys.executable, "-m", "tests.training.killed", str(folder), str(saves)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.rsplit("RESULT ", 1)[1])["found"]


def require_newest(found):
    """The state of the save that was confirmed, or of the one that was killed, if that was far enough."""
    for save in found:
        assert save["code"] == -9 and save["whole"] == "True", save
        assert save["found"] - save["confirmed"] in (0, 1), save
    # Both happen: killed before the state is published, and after.
    assert {save["found"] - save["confirmed"] for save in found} == {0, 1}


def test_the_newest_whole_state_is_found_wherever_in_a_save_the_process_was_killed(tmp_path):
    require_newest(killed(tmp_path, 100))
