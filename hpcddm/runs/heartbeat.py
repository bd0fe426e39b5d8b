"""Heartbeat of an attempt: its progress in a small file that every reader of the run can read."""

import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.files import atomic, reading

FILE_NAME = "heartbeat.json"
BEAT_SECONDS = 5.0
"""Least seconds between two heartbeats of one kind of work."""
SILENT_SECONDS = 60
"""Seconds without a heartbeat after which an attempt is not known to be running."""


@dataclass(frozen=True)
class Heartbeat:
    """One heartbeat; `done` and `total` count images, `rate` is images/s, times are seconds since the epoch."""

    time: float
    owner: str
    attempt: int
    host: str
    done: int = 0
    total: int = 0
    rate: float = 0.0
    figures: dict[str, float] | None = None
    """Figures of the work; a training gives those that it logged last, without those that are not known: loss,
    learning_rate, gradient_norm, images_per_second, data_wait, tflops, memory_gib, skipped.
    """
    saved_images: int | None = None
    """Images of the newest training state, which was saved at `saved_time`."""
    saved_time: float | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a time or a number that cannot be."""
        reading.require_times(self.time, self.saved_time or 0.0)
        reading.require_counts(self.done, self.total, self.rate, self.saved_images or 0)

    @property
    def is_fresh(self) -> bool:
        """True if the last heartbeat is younger than `SILENT_SECONDS`, and not of a time that is yet to come."""
        return abs(time.time() - self.time) < SILENT_SECONDS

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end, None before a rate is known."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


class HeartbeatWriter:
    """Writes the heartbeats of one attempt into its folder, at most one in `interval` seconds."""

    def __init__(self, folder: Path, owner: str, attempt: int, host: str, interval: float = BEAT_SECONDS) -> None:
        self._file = folder / FILE_NAME
        self._identity: dict[str, Any] = {"owner": owner, "attempt": attempt, "host": host}
        self._saved: dict[str, Any] = {}
        self._interval = interval
        self._last = 0.0
        self._started: tuple[float, int, int] | None = None

    def beat(self, done: int = 0, total: int = 0, **figures: float) -> None:
        """Report that `done` of `total` images are through; cheap enough for every step."""
        now = time.time()
        # Another total is another kind of work, whose pace the first one does not tell.
        if self._started is None or self._started[2] != total:
            self._started, self._last = (now, done, total), 0.0
        if now - self._last < self._interval and done < total:
            return
        self._last = now
        seconds, images = now - self._started[0], done - self._started[1]
        rate = images / seconds if seconds > 0 else 0.0
        beat = Heartbeat(now, done=done, total=total, rate=rate, figures=figures, **self._identity, **self._saved)
        # A sign of life that cannot be written is no reason to die.
        with suppress(UserError):
            atomic.write_json(self._file, asdict(beat), durable=False)

    def saved(self, images: int) -> None:
        """Report a saved training state of so many images; the next beat, which is due at once, writes it."""
        self._saved = {"saved_images": images, "saved_time": time.time()}
        self._last = 0.0


def read(folder: Path) -> Heartbeat | None:
    """Read the last heartbeat in an attempt's folder; None where there is none.

    Raises `Unreadable` naming the file where it is damaged.
    """
    beat: Heartbeat | None = reading.read_json(folder / FILE_NAME, Heartbeat, reading.RECORD_BYTES)
    return beat
