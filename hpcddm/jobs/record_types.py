"""Types of the records of an attempt, which may come from another site; all keys may be missing."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from hpcddm.files import checked_reads
from hpcddm.runs.job import require_job

MAX_RANKS = 1 << 16
"""Maximum number of ranks of a job; messages list the ranks that did not record their end."""


@dataclass(frozen=True)
class Owner:
    """Owner and allocation of an attempt; times are in seconds since the epoch."""

    __pydantic_config__: ClassVar = checked_reads.ALLOW_EXTRA_KEYS

    owner: str = ""
    host: str = ""
    started: float = 0.0
    job: str | None = None
    node_list: str = ""
    ranks: int = 1
    cpus: int = 0
    gpus: int = 0
    origin: dict[str, Any] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise `ValueError` for an invalid time, number or job id."""
        if self.job is not None:
            require_job(self.job)
        checked_reads.require_times(self.started)
        checked_reads.require_counts(self.ranks, self.cpus, self.gpus)
        if self.ranks > MAX_RANKS:
            raise ValueError("holds more ranks than any job has")


@dataclass(frozen=True)
class AttemptStart:
    """First step of an attempt."""

    __pydantic_config__: ClassVar = checked_reads.ALLOW_EXTRA_KEYS

    images: int = 0
    trajectory: str = ""

    def __post_init__(self) -> None:
        """Raise `ValueError` for an invalid number."""
        checked_reads.require_counts(self.images)


@dataclass(frozen=True)
class AttemptEnd:
    """End of an attempt, as rank 0 recorded it."""

    __pydantic_config__: ClassVar = checked_reads.ALLOW_EXTRA_KEYS

    outcome: str = ""
    reason: str = ""
    started: float = 0.0
    ended: float = 0.0
    images: int = 0
    final: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` for an invalid time or number."""
        checked_reads.require_times(self.started, self.ended)
        checked_reads.require_counts(self.images)


@dataclass(frozen=True)
class VerdictRecord:
    """Verdict of the batch script on an attempt."""

    __pydantic_config__: ClassVar = checked_reads.ALLOW_EXTRA_KEYS

    decision: str = ""
    reason: str = ""
    exit_code: int = 0
    memory_gb: int | None = None
    outside: bool = False
    by_slurm: bool = False
    """True if a node, srun or the controller ended the attempt, not one of its ranks."""
    nodes: list[str] = field(default_factory=list)
    """Nodes at fault."""
    started: float = 0.0
    ended: float = 0.0

    def __post_init__(self) -> None:
        """Raise `ValueError` for an invalid time."""
        checked_reads.require_times(self.started, self.ended)


@dataclass(frozen=True)
class RendezvousAddress:
    """Address on which rank 0 listens."""

    address: str
    port: int
