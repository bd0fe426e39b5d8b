"""Activity on a unit, from the records of its attempts."""

from dataclasses import dataclass, field, replace

from hpcddm.jobs.attempt import list_attempts
from hpcddm.jobs.attempt_records import AttemptRecord, read_record
from hpcddm.runs.heartbeat import Heartbeat
from hpcddm.runs.run_dir import RunDir

LOOK_BACK = 20
"""Number of newest attempts that `read_activity` searches for progress."""


@dataclass(frozen=True)
class Activity(AttemptRecord):
    """Record of the last attempt at a unit, and what the attempts before it left; number 0 and empty without any."""

    progress: Heartbeat | None = None
    """Newest heartbeat with a number of images, possibly from an earlier attempt, with the newest training state."""
    faulty: dict[str, str] = field(default_factory=dict)
    """Nodes that ended attempts since the last saved training state; the value is the reason."""


def read_activity(run: RunDir, key: str) -> Activity:
    """Read the activity on a unit, from the newest attempt back to the last one that saved a training state.

    Args:
        run: The run.
        key: The unit, as `stage/unit`.
    """
    last, progress, faulty = AttemptRecord(0, run.logs(key)), None, dict[str, str]()
    for number, folder in list_attempts(run.logs(key))[: -LOOK_BACK - 1 : -1]:
        record = read_record(number, folder)
        if last.number and record.ended_well:
            # The outputs existed, and the later attempts make them again.
            break
        last = last if last.number else record
        faulty = dict.fromkeys(record.faulty_nodes, record.reason) | faulty
        if record.beat and record.beat.total:
            progress, saved = progress or record.beat, record.beat
            if saved.saved_images is not None and saved.saved_time:
                progress = replace(progress, saved_images=saved.saved_images, saved_time=saved.saved_time)
                break
    return Activity(**vars(last), progress=progress, faulty=faulty)
