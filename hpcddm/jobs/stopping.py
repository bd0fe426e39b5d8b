"""Stop flag of a process, set by signals, a dead launcher or the end of the allocation, and read between steps."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from hpcddm.errors import ExitCode, UserError

LAUNCHER_VARIABLE = "HPCDDM_LAUNCHER_PID"
"""Variable set by the launcher for this machine: its process id; units save and exit when that process ends."""

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)

ALLOCATION_ENDS = "the allocation is about to end"

SAVING_SECONDS = 120
"""Seconds for which a process may still run after its launcher has ended."""
POLL_SECONDS = 2.0
"""Minimum seconds between two checks of conditions that come without a signal."""
WAITING_SECONDS = 3
"""Seconds for which a process keeps waiting for other ranks after its flag is set."""
EXIT_CODE = ExitCode.HELD_OR_ABANDONED
"""Exit code of a rank that abandoned such a wait; it is not 0, so that srun also ends the ranks that wait for it."""


class StopFlag:
    """Flag that tells this process to stop after its current step; `reason` is None until then.

    Examples:
        >>> stop = StopFlag()
        >>> stop.reason is None
        True
        >>> stop.reserve_seconds(120)
        >>> stop.lead_seconds
        120
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.deadline: float | None = None
        """End of the allocation, in seconds since the epoch."""
        self.lead_seconds = 0.0
        """Seconds before the deadline at which the flag is set."""

    def install(self) -> None:
        """Catch the signals and watch the launcher."""
        # Python runs a handler only when the main thread returns from C++, which may take minutes; the number of the
        # signal arrives through this pipe immediately.
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(reading,), daemon=True).start()
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        if launcher := os.environ.get(LAUNCHER_VARIABLE):
            threading.Thread(target=self._watch, args=(int(launcher),), daemon=True).start()

    def watch(self, conditions: Sequence[tuple[float, Callable[[], str | None]]]) -> None:
        """Check the end of the allocation and further conditions repeatedly in a thread.

        Args:
            conditions: Seconds between two checks, and a function that returns a reason to stop or None.
        """
        checks = ((POLL_SECONDS, self._allocation_end), *conditions)
        threading.Thread(target=self._check, args=(checks,), daemon=True).start()

    def reserve_seconds(self, seconds: float) -> None:
        """Set the flag at least `seconds` before the end of the allocation."""
        self.lead_seconds = max(self.lead_seconds, seconds)

    @contextmanager
    def exit_on_stop(self, on_exit: Callable[[str], None] | None = None) -> Iterator[None]:
        """Exit this process soon after the flag is set, during a wait in which no work can be lost.

        Args:
            on_exit: Function that is called with the reason before the process exits.
        """
        over = threading.Event()
        threading.Thread(target=self._cut, args=(over, on_exit), daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _cut(self, over: threading.Event, on_exit: Callable[[str], None] | None) -> None:
        while not over.wait(0.1):
            if self.reason is None:
                continue
            if not over.wait(WAITING_SECONDS):
                try:
                    if on_exit:
                        on_exit(f"{self.reason}, while it waited for the other ranks")
                finally:
                    os._exit(EXIT_CODE)
            return

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.reason = self.reason or signal.Signals(number).name

    def _allocation_end(self) -> str | None:
        return None if self.deadline is None or time.time() < self.deadline - self.lead_seconds else ALLOCATION_ENDS

    def _check(self, conditions: Sequence[tuple[float, Callable[[], str | None]]]) -> None:
        due = [0.0] * len(conditions)
        # Until the process ends: a process that should stop may hang, and must still notice that it was replaced.
        while True:
            for number, (seconds, condition) in enumerate(conditions):
                if time.monotonic() < due[number]:
                    continue
                due[number] = time.monotonic() + seconds
                # A hiccup of the file system must not end the watch.
                with suppress(OSError, UserError):
                    reason = condition()
                    self.reason = self.reason or reason
            time.sleep(POLL_SECONDS)

    def _listen(self, reading: int) -> None:
        while True:
            if (number := os.read(reading, 1)[0]) in SIGNALS:
                self._on_signal(number, None)

    def _watch(self, launcher: int) -> None:
        # Not at the top: the batch script runs modules at every start that do not need psutil.
        import psutil

        while psutil.pid_exists(launcher):
            time.sleep(1.0)
        self.reason = self.reason or "the launcher is gone"
        # A rank may wait for a dead rank and never finish its step; no other process would end it.
        time.sleep(SAVING_SECONDS)
        os._exit(1)


class Stopped(Exception):
    """Early end of a unit at a point where no work is lost; the same command continues the unit."""
