import os
import signal
import subprocess
import sys

import pytest

from tests.helpers import python

WAIT = """
import os, signal, sys, time
from hpcddm.jobs.stopping import StopFlag
flag = StopFlag()
flag.install()
print("ready", flush=True)
deadline = time.time() + 20
while flag.reason is None and time.time() < deadline:
    time.sleep(0.01)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
    os.kill(os.getpid(), number)
print(flag.reason)
"""


def waiting(**environment):
    command = [sys.executable, "-c", WAIT]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT"])
def test_every_signal_of_a_scheduler_sets_the_flag_and_later_ones_change_nothing(name):
    process = waiting()
    process.send_signal(signal.Signals[name])
    assert process.communicate(timeout=10)[0] == f"{name}\n" and process.returncode == 0


def test_a_launcher_that_is_gone_sets_the_flag():
    launcher = subprocess.Popen(["sleep", "60"])
    process = waiting(HPCDDM_LAUNCHER_PID=str(launcher.pid))
    launcher.kill()
    launcher.wait()
    assert process.communicate(timeout=10)[0] == "the launcher is gone\n"


def test_a_rank_that_comes_to_no_step_boundary_ends_all_the_same_when_its_launcher_is_gone():
    code = "import time; from hpcddm.jobs import stopping; stopping.SAVING_SECONDS = 0.2; "
    code += "flag = stopping.StopFlag(); flag.install(); time.sleep(20)"
    launcher = subprocess.Popen(["true"])
    launcher.wait()
    assert python(code, HPCDDM_LAUNCHER_PID=str(launcher.pid)).returncode == 1


CUT = """
import os, signal, sys, time
from hpcddm.jobs import stopping
stopping.WAITING_SECONDS = 0.2
flag = stopping.StopFlag()
with flag.exit_on_stop(lambda reason: print(reason, flush=True)):
    flag.reason = sys.argv[1] or None
    time.sleep(float(sys.argv[2]))
print("through", flush=True)
time.sleep(0.5)
"""


SAID = "SIGTERM, while it waited for the other ranks\n"
WAITS = [("SIGTERM", 20, 75, SAID), ("SIGTERM", 0, 0, "through\n"), ("", 0.5, 0, "through\n")]


@pytest.mark.parametrize("reason, seconds, code, said", WAITS)
def test_only_a_wait_that_lasts_exits_and_only_when_told_to_stop(reason, seconds, code, said):
    done = python(CUT, reason, seconds)
    assert (done.returncode, done.stdout) == (code, said), done.stderr
