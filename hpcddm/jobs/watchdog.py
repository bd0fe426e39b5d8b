"""Watchdog that ends a training without steps, because a hanging rank would waste the whole allocation."""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable

from hpcddm.errors import ExitCode

EXIT_CODE = ExitCode.WATCHDOG
LAST_WORDS_SECONDS = 60
TICKS = 20
"""Number of ticks of the watching thread within the time limit.

Ticks are counted instead of reading a clock, which would continue while the scheduler has suspended the job.
"""


class Watchdog:
    """Context manager that ends this process if `touch` is not called in time; srun then ends the other ranks.

    Args:
        seconds: Maximum seconds between two calls of `touch`.
        on_exit: Function that is called with the reason before the process ends.
    """

    def __init__(self, seconds: float, on_exit: Callable[[str], None]) -> None:
        self._seconds = seconds
        self._on_exit = on_exit
        self._over = threading.Event()
        self._ticks = 0

    def __enter__(self) -> "Watchdog":
        self.touch()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()

    def touch(self) -> None:
        """Record a step."""
        self._ticks = 0

    def _watch(self) -> None:
        while not self._over.wait(self._seconds / TICKS):
            self._ticks += 1
            if self._ticks < TICKS:
                continue
            # If the file system hangs as well, a thread outside of Python ends this process.
            faulthandler.dump_traceback_later(LAST_WORDS_SECONDS, exit=True)
            try:
                print(f"no step in {self._seconds:.0f} s; where the threads are:", file=sys.stderr, flush=True)
                faulthandler.dump_traceback(all_threads=True)
                self._on_exit(f"no step in {self._seconds:.0f} s; rank's log shows where it hung")
            finally:
                os._exit(EXIT_CODE)
