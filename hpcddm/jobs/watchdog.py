"""Watchdog that ends a training without steps, as a rank that waits for ever wastes its whole allocation."""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable

from hpcddm.errors import exit_codes

EXIT_CODE = exit_codes.WATCHDOG
LAST_WORDS_SECONDS = 60
TICKS = 20
"""Number of ticks of the watching thread that make up the time allowed without a step.

No clock is read: it runs on while the scheduler has suspended the job, and a tick that comes late counts as one.
"""


class Watchdog:
    """Ends this process when `touch` is not called for `seconds`; srun then takes down the other ranks.

    `on_exit` is called with the reason just before.
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
        """Record that a step was made."""
        self._ticks = 0

    def _watch(self) -> None:
        while not self._over.wait(self._seconds / TICKS):
            self._ticks += 1
            if self._ticks < TICKS:
                continue
            # Should the file system hang, too, a thread outside of Python ends this process.
            faulthandler.dump_traceback_later(LAST_WORDS_SECONDS, exit=True)
            try:
                print(f"no step in {self._seconds:.0f} s; where the threads are:", file=sys.stderr, flush=True)
                faulthandler.dump_traceback(all_threads=True)
                self._on_exit(f"no step in {self._seconds:.0f} s; rank's log shows where it hung")
            finally:
                os._exit(EXIT_CODE)
