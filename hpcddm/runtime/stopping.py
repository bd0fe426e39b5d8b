"""Signals, a dead launcher and the end of the allocation all set one flag, read at step boundaries."""

import os
import signal
import threading
import time
from types import FrameType

LAUNCHER_VARIABLE = "HPCDDM_LAUNCHER_PID"
"""Set by the embedded launcher: units leave, with everything saved, when that process is gone."""

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)


class StopFlag:
    """Says whether, and why, this process should leave at the next step boundary."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def install(self) -> None:
        """Catch the signals (TERM can come more than once) and watch the launcher."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        launcher = os.environ.get(LAUNCHER_VARIABLE)
        if launcher:
            threading.Thread(target=self._watch, args=(int(launcher),), daemon=True).start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.reason = self.reason or signal.Signals(number).name

    def _watch(self, launcher: int) -> None:
        while self.reason is None:
            time.sleep(1.0)
            try:
                os.kill(launcher, 0)
            except ProcessLookupError:
                self.reason = "the launcher is gone"
            except PermissionError:
                return


class Stopped(Exception):
    """The unit left early, with its state saved; the same command continues it."""
