"""Server and controller of the embedded site, with ranks that do nothing but live and die."""

import os
import signal
import time

import pytest

from hpcddm.config.site import Resources, Site
from hpcddm.errors import UserError
from hpcddm.launch.local import fork_server
from hpcddm.launch.local.launcher import LocalLauncher
from hpcddm.runs.run_dir import RunDir
from tests.helpers import python


def wait_for(condition, seconds=15):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")


IMPATIENT = """
from hpcddm.launch.local import controller, fork_server
controller.DEATH_SECONDS = controller.SAVING_SECONDS = 1
fork_server.PRELOADED = ()
fork_server.serve()
"""


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    """A launcher whose server has imported nothing and whose controllers wait for a second only."""
    monkeypatch.setattr(fork_server, "SERVER", ("-c", IMPATIENT))
    run = RunDir(tmp_path / "run")
    run.jobs.mkdir(parents=True)
    return LocalLauncher(Site(name="here", scheduler="local"), run)


def start(launcher, folder, *arguments):
    """Two ranks; returns their job."""
    command = ["tests.launch.local.idle_ranks", str(folder), *arguments]
    return launcher.start_ranks(command, Resources(ranks_per_node=2), None)


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
@pytest.mark.parametrize("arguments", [(), ("deaf",)])
def test_a_rank_that_dies_takes_the_other_down_which_may_leave_by_itself(launcher, tmp_path, number, arguments):
    job = start(launcher, tmp_path, *arguments)
    pids = rank_pids(tmp_path)
    os.kill(pids[1], number)
    wait_for(lambda: not launcher.is_running(job))
    assert (tmp_path / "left-0").exists() == (not arguments) and all(map(is_gone, [int(job), *pids]))


def test_a_rank_that_ends_well_leaves_the_other_alone_and_term_reaches_every_rank(launcher, tmp_path):
    job = start(launcher, tmp_path)
    pids = rank_pids(tmp_path)
    os.kill(pids[1], signal.SIGTERM)
    wait_for((tmp_path / "left-1").exists)
    time.sleep(1.5)
    assert launcher.is_running(job) and not (tmp_path / "left-0").exists()
    launcher.cancel(job)
    wait_for(lambda: not launcher.is_running(job))
    assert (tmp_path / "left-0").exists()


def test_kill_leaves_no_rank_and_a_server_that_died_is_named(launcher, tmp_path):
    job = start(launcher, tmp_path, "deaf")
    pids = rank_pids(tmp_path)
    launcher.kill(job)
    wait_for(lambda: not launcher.is_running(job) and all(map(is_gone, pids)))
    (server,) = launcher._servers.values()
    server._process.kill()
    with pytest.raises(UserError, match="the process that starts units has died; see what it said"):
        start(launcher, tmp_path)
    assert not launcher.is_running(job)


LAUNCHER = """
import sys
from pathlib import Path
from hpcddm.config.site import Site
from hpcddm.launch.local import fork_server
from hpcddm.launch.local.launcher import LocalLauncher
from hpcddm.runs.run_dir import RunDir
from tests.launch.local import test_controller
folder = Path(sys.argv[1])
fork_server.SERVER = ("-c", test_controller.IMPATIENT)
launcher = LocalLauncher(Site(name="here", scheduler="local"), RunDir(folder / "run"))
(folder / "run/jobs").mkdir(parents=True)
print(test_controller.start(launcher, folder, *sys.argv[2:]), flush=True)
test_controller.rank_pids(folder)
"""


@pytest.mark.parametrize("arguments", [(), ("deaf",)])
def test_the_ranks_and_the_controller_end_when_the_launcher_is_gone(tmp_path, arguments):
    done = python(LAUNCHER, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: all(map(is_gone, [int(done.stdout), *rank_pids(tmp_path)])))
    assert [(tmp_path / f"left-{rank}").exists() for rank in (0, 1)] == [not arguments] * 2


HARMLESS = """
import importlib, os, sys, torch

def use(*arguments):
    raise AssertionError("a GPU is used before the fork")

torch.cuda.is_available = torch.cuda.device_count = torch.cuda.init = torch.cuda._lazy_init = use
from hpcddm.launch.local.fork_server import PRELOADED
for module in PRELOADED:
    importlib.import_module(module)
assert len(os.listdir("/proc/self/task")) == 1, "a thread is started before the fork"
before = set(sys.modules)
from hpcddm.models.flops import forward_flops
assert forward_flops(torch.nn.Linear(3, 4), torch.zeros(1, 3)) == 24
late = [name for name in set(sys.modules) - before if name.startswith("torch._")]
assert len(late) < 50, f"every unit imports {len(late)} modules to count FLOPs"
"""


def test_what_is_imported_before_the_fork_uses_no_gpu_starts_no_thread_and_is_all_that_counting_needs():
    done = python(HARMLESS)
    assert done.returncode == 0, done.stderr
