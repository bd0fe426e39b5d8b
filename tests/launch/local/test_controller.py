"""The controller of the embedded site, with ranks that do nothing but live and die."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from hpcddm.config.site import Resources
from hpcddm.jobs.stopping import LAUNCHER_VARIABLE
from hpcddm.launch.code_copy import Checkout
from hpcddm.launch.local import launcher
from tests.helpers import python

RANK = """
import os, signal, sys, time
rank, folder = os.environ["SUBMITIT_LOCAL_GLOBALID"], sys.argv[1]
def leave(number, frame):
    open(f"{folder}/left-{rank}", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in sys.argv else leave)
with open(f"{folder}/.{rank}", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"{folder}/.{rank}", f"{folder}/pid-{rank}")
time.sleep(60)
"""


def wait_for(condition, seconds=15):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")


SHORT = """
import sys
from hpcddm.launch.local import controller
controller.DEATH_SECONDS = controller.SAVING_SECONDS = 1
controller.UnitController(sys.argv[1]).run(max_retry=1)
"""


def start(folder, *arguments):
    """Two ranks under a controller; returns its process."""
    (folder / "jobs").mkdir()
    command = [sys.executable, "-c", RANK, str(folder), *arguments]
    return launcher.start_ranks(folder / "jobs", command, Resources(ranks_per_node=2), Checkout(), None, {})


def variables(ranks, command):
    """What the launcher tells a controller."""
    values = {"NTASKS": str(ranks), "COMMAND": command, "TIMEOUT_S": "600", "SIGNAL_DELAY_S": "30", "WITH_SHELL": ""}
    environment = {f"SUBMITIT_LOCAL_{name}": value for name, value in values.items()}
    return environment | {"SUBMITIT_STDERR_TO_STDOUT": "1", LAUNCHER_VARIABLE: str(os.getpid())}


def start_deaf(folder):
    """Two ranks that hear no TERM under a controller that waits for a second only."""
    environment = os.environ | variables(2, shlex.join([sys.executable, "-c", RANK, str(folder), "deaf"]))
    return subprocess.Popen([sys.executable, "-c", SHORT, str(folder / "jobs")], env=environment)


def rank_pids(folder):
    wait_for(lambda: len(list(folder.glob("pid-*"))) == 2)
    return [int((folder / f"pid-{rank}").read_text()) for rank in (0, 1)]


def is_gone(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_rank_that_dies_takes_the_other_down_which_may_leave_by_itself(tmp_path, number):
    controller, pids = start(tmp_path), rank_pids(tmp_path)
    os.kill(pids[1], number)
    controller.wait(timeout=10)
    assert (tmp_path / "left-0").exists() and all(map(is_gone, pids))


def test_a_rank_that_hears_nothing_is_killed(tmp_path):
    controller, pids = start_deaf(tmp_path), rank_pids(tmp_path)
    os.kill(pids[0], signal.SIGKILL)
    controller.wait(timeout=15)
    wait_for(lambda: all(map(is_gone, pids)))


def test_a_rank_that_ends_well_leaves_the_other_alone_and_term_reaches_every_rank(tmp_path):
    controller, pids = start(tmp_path), rank_pids(tmp_path)
    os.kill(pids[1], signal.SIGTERM)
    wait_for((tmp_path / "left-1").exists)
    with pytest.raises(subprocess.TimeoutExpired):
        controller.wait(timeout=1)
    assert not (tmp_path / "left-0").exists()
    controller.terminate()
    controller.wait(timeout=10)
    assert (tmp_path / "left-0").exists()


PLANTED = """
import os, runpy, sys
os.link(sys.argv[2], f"{sys.argv[1]}/{os.getpid()}_0_log.out")
runpy.run_module("hpcddm.launch.local.controller", run_name="__main__")
"""


def test_an_output_that_has_another_name_ends_it_in_one_line(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "jobs").mkdir()
    done = python(PLANTED, tmp_path / "jobs", tmp_path / "precious", **variables(1, "echo executed"))
    assert done.returncode == 1 and "_0_log.out: has another name, too (a hard link); " in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert (tmp_path / "precious").read_text() == "precious"


LAUNCHER = """
import sys
from pathlib import Path
from tests.launch.local import test_controller
folder = Path(sys.argv[2])
print(getattr(test_controller, sys.argv[1])(folder).pid, flush=True)
test_controller.rank_pids(folder)
"""


@pytest.mark.parametrize("how, leave", [("start", True), ("start_deaf", False)])
def test_the_ranks_and_the_controller_end_when_the_launcher_is_gone(tmp_path, how, leave):
    done = python(LAUNCHER, how, tmp_path)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: all(map(is_gone, [int(done.stdout), *rank_pids(tmp_path)])))
    assert [(tmp_path / f"left-{rank}").exists() for rank in (0, 1)] == [leave, leave]
