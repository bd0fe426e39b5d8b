"""Heartbeat of an attempt: a small file with its progress."""

import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Count, Quantity, Timestamp

FILE_NAME = "heartbeat.json"
BEAT_SECONDS = 5.0
"""Minimum seconds between two heartbeats of the same kind of work."""
SILENT_SECONDS = 60
"""Seconds without a heartbeat after which an attempt no longer counts as running."""


@dataclass(frozen=True)
class Heartbeat:
    """One heartbeat; `done` and `total` count images, `rate` is images/s, times are seconds since the epoch."""

    time: Timestamp
    owner: str
    attempt: int
    host: str
    done: Count = 0
    total: Count = 0
    rate: Quantity = 0.0
    figures: dict[str, float] | None = None
    """Further metrics. A training reports its last logged values, as far as they are known: loss, learning_rate,
    gradient_norm, images_per_second, data_wait, tflops, memory_gib, skipped.
    """
    saved_images: Count | None = None
    """Number of images at the newest training state, which was saved at `saved_time`."""
    saved_time: Timestamp | None = None

    @property
    def is_fresh(self) -> bool:
        """True if the heartbeat is within `SILENT_SECONDS` of the current time."""
        return abs(time.time() - self.time) < SILENT_SECONDS

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end; None before the rate is known."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


class HeartbeatWriter:
    """Writer of one attempt's heartbeats.

    Args:
        folder: Folder of the attempt.
        owner: Job that runs the attempt, as `owner.json` names it.
        attempt: Number of the attempt.
        host: Name of this node.
        interval: Minimum seconds between two heartbeats.
    """

    def __init__(self, folder: Path, owner: str, attempt: int, host: str, interval: float = BEAT_SECONDS) -> None:
        self._file = folder / FILE_NAME
        self._identity: dict[str, Any] = {"owner": owner, "attempt": attempt, "host": host}
        self._saved: dict[str, Any] = {}
        self._interval = interval
        self._last = 0.0
        self._started: tuple[float, int, int] | None = None

    def beat(self, done: int = 0, total: int = 0, **figures: float) -> None:
        """Report progress; cheap enough to call in every step.

        Args:
            done: Number of images processed.
            total: Number of images to process.
            figures: Further metrics, by name.
        """
        now = time.time()
        # Another total means another kind of work with a different rate.
        if self._started is None or self._started[2] != total:
            self._started, self._last = (now, done, total), 0.0
        if now - self._last < self._interval and done < total:
            return
        self._last = now
        seconds, images = now - self._started[0], done - self._started[1]
        rate = images / seconds if seconds > 0 else 0.0
        beat = Heartbeat(now, done=done, total=total, rate=rate, figures=figures, **self._identity, **self._saved)
        # A heartbeat that cannot be written must not end the job.
        with suppress(UserError):
            atomic.write_json(self._file, asdict(beat), durable=False)

    def saved(self, images: int) -> None:
        """Report a saved training state at `images` images; the next call of `beat` writes it without delay."""
        self._saved = {"saved_images": images, "saved_time": time.time()}
        self._last = 0.0


def read(folder: Path) -> Heartbeat | None:
    """Read the last heartbeat in an attempt's folder; None without one.

    Raises:
        Unreadable: If the file is damaged.
    """
    beat: Heartbeat | None = checked_reads.read_json(folder / FILE_NAME, Heartbeat, checked_reads.RECORD_BYTES)
    return beat
