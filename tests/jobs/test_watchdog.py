"""A process that makes no step is ended, and one that does is not."""

import signal
import subprocess
import sys
import time

import psutil

from tests.helpers import REPOSITORY, python

CODE = """
import sys, time
from hpcddm.jobs.watchdog import Watchdog
with Watchdog(0.5, lambda reason: print("last words:", reason, flush=True)) as watchdog:
    for _ in range(6):
        time.sleep(0.2)
        if sys.argv[1] == "steps":
            watchdog.touch()
print("through")
"""


def test_a_process_that_makes_no_step_is_ended_with_its_stack_in_the_log_and_one_that_does_is_left_alone():
    done = python(CODE, "hangs")
    assert done.returncode == 70 and "last words: no step" in done.stdout and "through" not in done.stdout
    assert 'File "<string>", line' in done.stderr
    done = python(CODE, "steps")
    assert done.returncode == 0 and done.stdout == "through\n"


SUSPENDED = """
from hpcddm.jobs.watchdog import Watchdog
with Watchdog(1.0, lambda reason: print("last words:", reason, flush=True)) as watchdog:
    print("training", flush=True)
    for step in range(16):
        sum(range(3_000_000))
        watchdog.touch()
print("through", flush=True)
"""


def test_a_process_that_the_scheduler_suspended_goes_on_when_it_is_resumed():
    process = subprocess.Popen([sys.executable, "-c", SUSPENDED], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    try:
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGSTOP)
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        # Longer than the watchdog allows.
        time.sleep(1.5)
        process.send_signal(signal.SIGCONT)
        said = process.communicate(timeout=60)[0]
        assert (process.returncode, said) == (0, "through\n")
    finally:
        process.kill()
