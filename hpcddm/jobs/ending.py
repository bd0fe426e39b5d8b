"""End of one execution of a job, from its exit code and from what Slurm tells of it."""

import time
from dataclasses import dataclass
from typing import Any

from hpcddm.jobs.failure_cause import Cause
from hpcddm.jobs.nodes import Node
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.records import AttemptRecord
from hpcddm.jobs.stopping import SLOT_ENDS

EARLY_SECONDS = 60
"""Seconds by which Slurm may send the signal before the time limit too early."""
SIGNAL_CODES = (138, 140, 143)
"""Exit codes of a process that USR1, USR2 or TERM ended before it could catch them."""


@dataclass(frozen=True)
class Ending:
    """End of one execution of a job: the ranks' exit code, the state of the job in Slurm, its limits."""

    code: int
    job: dict[str, str]
    """The words of `scontrol show job`; empty when it did not answer."""
    restart: int
    ends: float | None
    lead_seconds: float
    num_nodes: int = 1
    """Number of nodes of the job."""
    is_withdrawn: bool = False
    """True where the journal has a cancellation of it."""
    cause: Cause | None = None
    """Reason why the ranks failed, where more is known than their exit code."""
    nodes: tuple[Node, ...] = ()
    """Nodes of the job's partition; empty where they are unknown."""
    faulty: tuple[str, ...] = ()
    """Names of the nodes at fault."""

    @property
    def is_requeued(self) -> bool:
        """True if Slurm has started the job again by itself, as it does when a node is lost."""
        return int(self.job.get("Restarts", 0)) > self.restart

    @property
    def is_preempted(self) -> bool:
        """True if a job of a higher partition wants the nodes."""
        return self.job.get("PreemptTime", "None") != "None"

    @property
    def is_cancelled(self) -> bool:
        """True if it was cancelled; the time limit, a lost node and preemption leave other traces."""
        ending = self.job.get("JobState") in ("COMPLETING", "CANCELLED")
        return ending and self.job.get("Reason") == "None" and not self.is_preempted

    def is_at_the_slots_end(self, last: AttemptRecord) -> bool:
        """Tell if the attempt ended because its time was over."""
        slot_ends = self.ends is not None and time.time() > self.ends - self.lead_seconds - EARLY_SECONDS
        return slot_ends or last.ended.get("reason") == SLOT_ENDS or self.job.get("Reason") == "TimeLimit"

    def is_from_outside(self, last: AttemptRecord) -> bool:
        """Tell if the attempt was ended from outside; the end of the slot does not count: the next slot is as short."""
        if self.is_by_slurm(last):
            return True
        if self.is_at_the_slots_end(last):
            return False
        return last.outcome == Outcome.STOPPED or self.code in SIGNAL_CODES or self.is_preempted

    def is_by_slurm(self, last: AttemptRecord) -> bool:
        """Tell if a node, srun or the controller ended the attempt, and neither a rank nor anybody's request."""
        if last.ended_well or self.is_preempted or self.cause is None or not self.cause.is_outside:
            return False
        return bool(self.cause.nodes) or not self.is_at_the_slots_end(last)

    def sides(self, last: AttemptRecord) -> dict[str, bool]:
        """Return what the verdict records of who ended the attempt."""
        return {"outside": self.is_from_outside(last), "by_slurm": self.is_by_slurm(last)}


def parse_job(text: str) -> dict[str, str]:
    """Parse the key=value words of `scontrol show job -o`."""
    pairs: Any = (word.partition("=") for word in text.split())
    return {key: value for key, equals, value in pairs if equals}
