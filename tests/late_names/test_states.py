"""Training states of two nodes that see each other's names late."""

import json
import os
import subprocess
import sys

from tests.training.test_killed import killed, require_newest

STEPS = [100, 200, 300]
FILES = ["ema-rank0", "ema-rank1", "master-rank0", "master-rank1"]


def save(nodes, names):
    """What saving.py says, and the errors of its ranks."""
    command = [sys.executable, "-m", "tests.late_names.saving", nodes.server, nodes.a, nodes.b, names, *STEPS]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rsplit("RESULT ", 1)[1]), done.stderr


def test_every_file_of_every_state_is_of_its_step(late):
    result, _ = save(late, "fresh")
    assert result["codes"] == [0, 0]
    assert result["states"] == {f"images-{step:012d}": dict.fromkeys(FILES, str(step)) for step in STEPS[-2:]}
    assert result["listed"] == dict.fromkeys(result["states"], FILES)
    assert result["newest"] == f"images-{STEPS[-1]:012d}"


def test_under_a_name_that_is_used_again_the_ranks_miss_each_other_and_nothing_is_published(late):
    result, errors = save(late, "reused")
    assert list(result["states"]) == ["images-000000000100"] and 0 not in result["codes"]
    assert "rank1 is not there, but rank 1 wrote" in errors and "at 200 images is not published" in errors


def test_wherever_in_a_save_a_node_was_killed_its_newest_whole_state_is_found(late):
    require_newest(killed(late.a, 60))
