"""End of one execution of a job, from its exit code and Slurm's record of the job."""

import time
from dataclasses import dataclass
from typing import Any

from hpcddm.jobs.attempt_records import AttemptRecord
from hpcddm.jobs.failure_cause import Cause
from hpcddm.jobs.nodes import Node
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.stopping import ALLOCATION_ENDS, EXIT_CODE

EARLY_SECONDS = 60
"""Seconds by which Slurm may send the signal before the time limit too early."""
SIGNAL_CODES = (138, 140, 143)
"""Exit codes of a process that USR1, USR2 or TERM ended before the process could catch the signal."""


@dataclass(frozen=True)
class JobEnd:
    """End of one execution of a job."""

    code: int
    """Exit code of the ranks."""
    job: dict[str, str]
    """Fields of `scontrol show job`; empty if Slurm did not answer."""
    restart: int
    """Number of requeues before this execution."""
    ends: float | None
    """Time limit of the job, in seconds since the epoch; None if unknown."""
    lead_seconds: float
    """Seconds before the time limit at which Slurm signals the job."""
    num_nodes: int = 1
    """Number of nodes of the job."""
    is_withdrawn: bool = False
    """True if the journal records a cancellation of the job."""
    cause: Cause | None = None
    """Cause of the failure; None if only the exit code is known."""
    nodes: tuple[Node, ...] = ()
    """Nodes of the job's partition; empty if unknown."""
    faulty: tuple[str, ...] = ()
    """Names of the faulty nodes."""

    @property
    def is_requeued(self) -> bool:
        """True if Slurm has requeued the job itself, as after the loss of a node."""
        return int(self.job.get("Restarts", 0)) > self.restart

    @property
    def is_preempted(self) -> bool:
        """True if a job of a higher partition preempts this job."""
        return self.job.get("PreemptTime", "None") != "None"

    @property
    def is_cancelled(self) -> bool:
        """True if the job was cancelled; Slurm records time limit, lost node and preemption differently."""
        ending = self.job.get("JobState") in ("COMPLETING", "CANCELLED")
        return ending and self.job.get("Reason") == "None" and not self.is_preempted

    def is_out_of_time(self, last: AttemptRecord) -> bool:
        """Return True if the attempt ended at the time limit."""
        slot_ends = self.ends is not None and time.time() > self.ends - self.lead_seconds - EARLY_SECONDS
        return slot_ends or last.ended.get("reason") == ALLOCATION_ENDS or self.job.get("Reason") == "TimeLimit"

    def is_stopped_by_limit(self, last: AttemptRecord) -> bool:
        """Return True if the time limit ended the attempt, and not an error shortly before it."""
        return self.job.get("Reason") == "TimeLimit" or (last.outcome == Outcome.STOPPED and self.is_out_of_time(last))

    def is_from_outside(self, last: AttemptRecord) -> bool:
        """Return True if something outside ended the attempt; the time limit does not count, because it stays as short.

        Args:
            last: Record of the attempt.
        """
        if self.is_by_slurm(last):
            return True
        if self.is_out_of_time(last):
            return False
        # A rank that was told to stop leaves so while it waits for the others, which srun then ends.
        is_abandoned = self.code == EXIT_CODE and last.outcome is None
        return last.outcome == Outcome.STOPPED or self.code in SIGNAL_CODES or self.is_preempted or is_abandoned

    def is_by_slurm(self, last: AttemptRecord) -> bool:
        """Return True if a node, srun or the controller ended the attempt, not a rank or a user.

        Args:
            last: Record of the attempt.
        """
        if last.ended_well or self.is_preempted or self.cause is None or not self.cause.is_outside:
            return False
        return bool(self.cause.nodes) or not self.is_out_of_time(last)

    def cause_fields(self, last: AttemptRecord) -> dict[str, bool]:
        """Return the verdict's entries about the cause of the end."""
        return {"outside": self.is_from_outside(last), "by_slurm": self.is_by_slurm(last)}


def parse_job(text: str) -> dict[str, str]:
    """Parse the key=value fields of `scontrol show job -o`.

    Examples:
        >>> parse_job("JobId=81235 JobState=RUNNING Restarts=1")
        {'JobId': '81235', 'JobState': 'RUNNING', 'Restarts': '1'}
    """
    pairs: Any = (word.partition("=") for word in text.split())
    return {key: value for key, equals, value in pairs if equals}
