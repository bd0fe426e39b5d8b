"""Activity on a unit, from the records of its attempts."""

from dataclasses import dataclass, field

from hpcddm.jobs.attempt import list_attempts
from hpcddm.jobs.attempt_records import AttemptRecord, read_record
from hpcddm.jobs.outcome import Outcome
from hpcddm.runs.heartbeat import Heartbeat
from hpcddm.runs.run_dir import RunDir

LOOK_BACK = 20
"""Number of newest attempts that `read_activity` searches for progress."""


@dataclass(frozen=True)
class Activity:
    """Activity on a unit: its last attempt, and its last progress."""

    last: AttemptRecord | None
    """Record of the last attempt; None without attempts."""
    beat: Heartbeat | None
    """Newest heartbeat with a number of images, possibly from an earlier attempt."""
    saved: tuple[int, float] | None
    """Number of images of the newest training state, and the time at which it was written."""
    faulty: dict[str, str] = field(default_factory=dict)
    """Nodes that ended attempts since the last saved training state; the value is the reason."""

    @property
    def attempts(self) -> int:
        """Number of the last attempt; 0 without attempts."""
        return self.last.number if self.last else 0

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the last attempt; None if none is recorded."""
        return self.last.outcome if self.last else None

    @property
    def reason(self) -> str:
        """Reason for the end of the last attempt; empty if none is recorded."""
        return self.last.reason if self.last else ""

    @property
    def is_running(self) -> bool:
        """True if the last attempt is open and has a recent heartbeat."""
        return self.last is not None and self.last.is_open and self.last.beat is not None and self.last.beat.is_fresh


def read_activity(run: RunDir, key: str) -> Activity:
    """Read the activity on a unit, from the newest attempt back to the last one that saved a training state.

    Args:
        run: The run.
        key: The unit, as `stage/unit`.
    """
    last: AttemptRecord | None = None
    beat: Heartbeat | None = None
    saved: tuple[int, float] | None = None
    faulty: dict[str, str] = {}
    for number, folder in list_attempts(run.logs(key))[: -LOOK_BACK - 1 : -1]:
        record = read_record(number, folder)
        if last and record.ended_well:
            # The outputs existed, and the later attempts make them again.
            break
        last = last or record
        faulty = dict.fromkeys(record.faulty_nodes, record.reason) | faulty
        if record.beat and record.beat.total:
            beat = beat or record.beat
            if record.beat.saved_images is not None and record.beat.saved_time:
                saved = record.beat.saved_images, record.beat.saved_time
                break
    return Activity(last, beat, saved, faulty)
