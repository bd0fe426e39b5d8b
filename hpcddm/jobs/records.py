"""Records of the attempts at a unit: owner, first step, progress and end of each."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.errors.printing import printable
from hpcddm.files import fresh, reading
from hpcddm.files.reading import Unreadable
from hpcddm.jobs.attempt import BEGUN, ENDED, OWNER, VERDICT, attempts
from hpcddm.jobs.failure_cause import cause_of
from hpcddm.jobs.outcome import Outcome, outcome_of
from hpcddm.jobs.record_types import Begun, Decided, Ended, Owner
from hpcddm.runs import heartbeat
from hpcddm.runs.heartbeat import Heartbeat
from hpcddm.runs.job import JobId

FROM_QUEUE = re.compile(r"slurm-(?P<name>.+-(?P<token>[0-9a-f]{12}))-[0-9]+(_[0-9]+)?\.[0-9]+")
"""Pattern of an owner under Slurm: job name, which ends in the token of its submission, element and restart."""

MOST_OF_A_REASON = 2000
"""Letters of a reason, which may end in a command."""
TYPES = {OWNER: Owner, BEGUN: Begun, ENDED: Ended, VERDICT: Decided}
"""Types of the files of a record."""


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt, from its folder; a file that is missing or damaged counts as not written."""

    number: int
    folder: Path
    owner: dict[str, Any]
    begun: dict[str, Any]
    ended: dict[str, Any]
    verdict: dict[str, Any]
    beat: Heartbeat | None
    faults: tuple[str, ...] = ()
    """Errors about its files that are damaged."""

    @property
    def job(self) -> JobId | None:
        """Id of the job or array element that ran it, such as '81235_3'; None where no queue was involved."""
        return JobId(self.owner["job"]) if self.owner.get("job") else None

    @property
    def token(self) -> str | None:
        """The token of the submission that it belongs to; None where no queue was involved."""
        match = FROM_QUEUE.fullmatch(str(self.owner.get("owner")))
        return match["token"] if match else None

    @property
    def job_name(self) -> str | None:
        """The name of its job; None where no queue was involved."""
        match = FROM_QUEUE.fullmatch(str(self.owner.get("owner")))
        return match["name"] if match else None

    @property
    def changes(self) -> list[str]:
        """Code and package versions that differ from those of the earlier attempts that this one resumes, as text."""
        changes = self.owner.get("changes")
        return [printable(change) for change in changes or ()]

    @property
    def decision(self) -> Outcome | None:
        """Decision of the batch script after the attempt; None where none was written.

        Where the ranks found that a later execution has begun, the script could only say the same, and may be killed
        before it has: a slurmd that comes back ends what its node ran for the job.
        """
        written = outcome_of(self.verdict.get("decision"))
        return self.outcome if written is None and self.outcome == Outcome.SUPERSEDED else written

    @property
    def outcome(self) -> Outcome | None:
        """Outcome that rank 0 recorded; None while it runs, and when it died."""
        return outcome_of(self.ended.get("outcome"))

    @property
    def reason(self) -> str:
        """Reason for its end: in the words of the verdict, else of the rank whose error was the cause."""
        world_size = int(as_number(self.owner, "ranks") or 1)
        if not self.verdict and self.outcome == Outcome.FAILED and world_size > 1:
            cause = cause_of(self.folder, world_size)
            if cause:
                return printable(cause.reason, MOST_OF_A_REASON)
        return printable(self.verdict.get("reason") or self.ended.get("reason") or "", MOST_OF_A_REASON)

    @property
    def nodes(self) -> str:
        """Nodes that it ran on, in Slurm's notation; '' where they are unknown."""
        return printable(self.owner.get("node_list") or (self.beat.host if self.beat else ""))

    @property
    def faulty(self) -> list[str]:
        """Names of the nodes that ended it, by the verdict."""
        return [printable(name, 40) for name in self.verdict.get("nodes", ())]

    @property
    def is_open(self) -> bool:
        """True if no end is recorded."""
        return not self.verdict and not self.ended

    @property
    def ended_well(self) -> bool:
        """True if the unit is complete by this record."""
        return self.decision == Outcome.COMPLETE or self.outcome in (Outcome.COMPLETE, Outcome.ALREADY_COMPLETE)

    @property
    def started(self) -> float | None:
        """Start of the job's script, in seconds since the epoch."""
        return as_number(self.owner, "started") or as_number(self.verdict, "started")

    @property
    def stopped(self) -> float | None:
        """Recorded end, in seconds since the epoch."""
        return as_number(self.verdict, "ended") or as_number(self.ended, "ended")

    @property
    def images(self) -> float | None:
        """Number of images that its training had seen at the end, or at its last heartbeat."""
        last = as_number(self.ended, "images")
        return last if last is not None else self.beat.done if self.beat and self.beat.total else None


def records(logs: Path) -> list[AttemptRecord]:
    """Read the records of all attempts at a unit, oldest first."""
    return [read_record(number, folder) for number, folder in attempts(logs)]


def read_record(number: int, folder: Path) -> AttemptRecord:
    """Read the record of one attempt."""
    # A name that is not listed may be there all the same for a node that knew it, and the other way round.
    present = fresh.names(folder)
    values: dict[str, dict[str, Any]] = dict.fromkeys(TYPES, {})
    beat, faults = None, list[str]()
    for name, shape in TYPES.items():
        try:
            values[name] = (reading.read_mapping(folder / name, shape) or {}) if name in present else {}
        except Unreadable as error:
            faults.append(str(error))
    try:
        beat = heartbeat.read(folder)
    except Unreadable as error:
        faults.append(str(error))
    owner, begun, ended, verdict = values.values()
    return AttemptRecord(number, folder, owner, begun, ended, verdict, beat, tuple(faults))


def as_number(values: dict[str, Any], key: str) -> float | None:
    """Return a number of a record; None where it is missing or no number."""
    value = values.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
