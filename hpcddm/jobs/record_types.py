"""Types of the records of an attempt, which may come from another site; all keys may be missing."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from hpcddm.files.checked_reads import Count, OpenRecord, Rule, Timestamp
from hpcddm.runs.job import require_job

MAX_RANKS = 1 << 16
"""Maximum number of ranks of a job; messages list the ranks that did not record their end."""


@dataclass(frozen=True)
class Owner(OpenRecord):
    """Owner and allocation of an attempt; times are in seconds since the epoch."""

    owner: str = ""
    host: str = ""
    started: Timestamp = 0.0
    job: Annotated[str, Rule(require_job)] | None = None
    node_list: str = ""
    ranks: Count = 1
    cpus: Count = 0
    gpus: Count = 0
    origin: dict[str, Any] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise `ValueError` for too many ranks."""
        if self.ranks > MAX_RANKS:
            raise ValueError("holds more ranks than any job has")


@dataclass(frozen=True)
class AttemptStart(OpenRecord):
    """First step of an attempt."""

    images: Count = 0
    trajectory: str = ""


@dataclass(frozen=True)
class AttemptEnd(OpenRecord):
    """End of an attempt, as rank 0 recorded it."""

    outcome: str = ""
    reason: str = ""
    started: Timestamp = 0.0
    ended: Timestamp = 0.0
    images: Count = 0
    final: bool = False


@dataclass(frozen=True)
class VerdictRecord(OpenRecord):
    """Verdict of the batch script on an attempt."""

    decision: str = ""
    reason: str = ""
    exit_code: int = 0
    memory_gb: int | None = None
    outside: bool = False
    by_slurm: bool = False
    """True if a node, srun or the controller ended the attempt, not one of its ranks."""
    nodes: list[str] = field(default_factory=list)
    """Nodes at fault."""
    started: Timestamp = 0.0
    ended: Timestamp = 0.0


@dataclass(frozen=True)
class RendezvousAddress:
    """Address on which rank 0 listens."""

    address: str
    port: int
