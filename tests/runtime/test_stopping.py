import os
import signal
import subprocess
import sys

import pytest

WAIT = """
import os, signal, sys, time
from hpcddm.runtime.stopping import StopFlag
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
