"""Records of the attempts at a unit: owner, first step, progress and end."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcddm.errors.printing import printable
from hpcddm.files import checked_reads, nfs_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.jobs.attempt import (
    BEGUN,
    ENDED,
    OWNER,
    VERDICT,
    AttemptEnd,
    AttemptStart,
    Owner,
    VerdictRecord,
    list_attempts,
)
from hpcddm.jobs.failure_cause import find_cause
from hpcddm.jobs.outcome import Outcome, outcome_of
from hpcddm.runs import heartbeat
from hpcddm.runs.heartbeat import Heartbeat
from hpcddm.runs.job import JobId

FROM_QUEUE = re.compile(r"slurm-(?P<name>.+-(?P<token>[0-9a-f]{12}))-[0-9]+(_[0-9]+)?\.[0-9]+")
"""Pattern of an owner under Slurm: job name, which ends in the submission's token, element and restart count."""

MAX_REASON_CHARACTERS = 2000
"""Maximum length of a reason, which may end in a command."""
TYPES = {OWNER: Owner, BEGUN: AttemptStart, ENDED: AttemptEnd, VERDICT: VerdictRecord}
"""Types of the files in a record."""


@dataclass(frozen=True)
class AttemptRecord:
    """Record of one attempt; missing and damaged files count as empty."""

    number: int
    folder: Path
    owner: dict[str, Any] = field(default_factory=dict)
    begun: dict[str, Any] = field(default_factory=dict)
    ended: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    beat: Heartbeat | None = None
    file_errors: tuple[str, ...] = ()
    """Errors about damaged files."""

    @property
    def job(self) -> JobId | None:
        """Id of the job or array element, such as '81235_3'; None without a queue."""
        return JobId(self.owner["job"]) if self.owner.get("job") else None

    @property
    def token(self) -> str | None:
        """Token of its submission; None without a queue."""
        match = FROM_QUEUE.fullmatch(str(self.owner.get("owner")))
        return match["token"] if match else None

    @property
    def job_name(self) -> str | None:
        """Name of its job; None without a queue."""
        match = FROM_QUEUE.fullmatch(str(self.owner.get("owner")))
        return match["name"] if match else None

    @property
    def changes(self) -> list[str]:
        """Changes of code and package versions since the attempts that this one continues, as text."""
        return [printable(change) for change in self.owner.get("changes") or ()]

    @property
    def decision(self) -> Outcome | None:
        """Decision of the batch script after the attempt; None if none is recorded.

        If the ranks recorded that a later execution has started, this is the decision even without a record of the
        script: a restarted slurmd may kill the script before it writes one.
        """
        written = outcome_of(self.verdict.get("decision"))
        return self.outcome if written is None and self.outcome == Outcome.SUPERSEDED else written

    @property
    def outcome(self) -> Outcome | None:
        """Outcome that rank 0 recorded; None while the attempt runs, or if rank 0 died."""
        return outcome_of(self.ended.get("outcome"))

    @property
    def reason(self) -> str:
        """Reason for its end, from the verdict or else from the rank that caused the failure."""
        world_size = self.owner.get("ranks") or 1
        if not self.verdict and self.outcome == Outcome.FAILED and world_size > 1:
            if cause := find_cause(self.folder, world_size):
                return printable(cause.reason, MAX_REASON_CHARACTERS)
        return printable(self.verdict.get("reason") or self.ended.get("reason") or "", MAX_REASON_CHARACTERS)

    @property
    def nodes(self) -> str:
        """Nodes of the attempt, in Slurm's notation; '' if unknown."""
        return printable(self.owner.get("node_list") or (self.beat.host if self.beat else ""))

    @property
    def faulty_nodes(self) -> list[str]:
        """Names of the nodes that ended it, according to the verdict."""
        return [printable(name, 40) for name in self.verdict.get("nodes", ())]

    @property
    def is_open(self) -> bool:
        """True if no end is recorded."""
        return not self.verdict and not self.ended

    @property
    def is_running(self) -> bool:
        """True if no end is recorded and the last heartbeat is recent."""
        return self.is_open and self.beat is not None and self.beat.is_fresh

    @property
    def ended_well(self) -> bool:
        """True if the unit was complete at the end of the attempt."""
        return self.decision == Outcome.COMPLETE or self.outcome in (Outcome.COMPLETE, Outcome.ALREADY_COMPLETE)

    @property
    def started(self) -> float | None:
        """Start of the batch script, in seconds since the epoch; None if unknown."""
        return self.owner.get("started") or self.verdict.get("started")

    @property
    def stopped(self) -> float | None:
        """Recorded end, in seconds since the epoch; None if none is recorded."""
        return self.verdict.get("ended") or self.ended.get("ended")

    @property
    def images(self) -> float | None:
        """Number of images processed, by the record of the end and the last heartbeat; None if unknown."""
        # A failed attempt records the images of its last saved state, and its heartbeat those since.
        known = [self.ended.get("images"), self.beat.done if self.beat and self.beat.total else None]
        return max((number for number in known if number is not None), default=None)


def read_records(logs: Path) -> list[AttemptRecord]:
    """Read the records of all attempts in a unit's log folder, oldest first."""
    return [read_record(number, folder) for number, folder in list_attempts(logs)]


def read_record(number: int, folder: Path) -> AttemptRecord:
    """Read the record of one attempt."""
    # A name missing from the listing may still exist for a node that has it cached, and vice versa.
    present = nfs_reads.list_names(folder)
    values: dict[str, dict[str, Any]] = dict.fromkeys(TYPES, {})
    beat, faults = None, list[str]()
    for name, shape in TYPES.items():
        try:
            values[name] = (checked_reads.read_mapping(folder / name, shape) or {}) if name in present else {}
        except Unreadable as error:
            faults.append(str(error))
    try:
        beat = heartbeat.read(folder)
    except Unreadable as error:
        faults.append(str(error))
    owner, begun, ended, verdict = values.values()
    return AttemptRecord(number, folder, owner, begun, ended, verdict, beat, tuple(faults))
