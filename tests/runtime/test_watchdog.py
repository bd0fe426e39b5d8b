"""A process that makes no step is ended, and one that does is not."""

from tests.helpers import python

CODE = """
import sys, time
from hpcddm.runtime.watchdog import Watchdog
with Watchdog(0.5, lambda reason: print("last words:", reason, flush=True)) as watchdog:
    for _ in range(6):
        time.sleep(0.2)
        if sys.argv[1] == "steps":
            watchdog.touch()
print("through")
"""


def test_a_process_that_makes_no_step_is_ended_with_its_stack_in_the_log():
    done = python(CODE, "hangs")
    assert done.returncode == 70 and "last words: no step" in done.stdout and "through" not in done.stdout
    assert 'File "<string>", line' in done.stderr


def test_a_process_that_makes_steps_is_left_alone():
    done = python(CODE, "steps")
    assert done.returncode == 0 and done.stdout == "through\n"
