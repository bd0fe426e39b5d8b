"""Types of the records of an attempt, which an attempt of another site wrote, too; all keys may be missing."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from hpcddm.files import reading
from hpcddm.runs.job import require_job

MOST_RANKS = 1 << 16
"""Most ranks of a job: those that left no record of their end are named one by one."""


@dataclass(frozen=True)
class Owner:
    """Owner of an attempt and the allocation that it ran in; times are seconds since the epoch."""

    __pydantic_config__: ClassVar = reading.OPEN

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
        """Raise `ValueError` for a time, a number or a job that cannot be."""
        if self.job is not None:
            require_job(self.job)
        reading.require_times(self.started)
        reading.require_counts(self.ranks, self.cpus, self.gpus)
        if self.ranks > MOST_RANKS:
            raise ValueError("holds more ranks than any job has")


@dataclass(frozen=True)
class Begun:
    """First step of an attempt."""

    __pydantic_config__: ClassVar = reading.OPEN

    images: int = 0
    trajectory: str = ""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that cannot be."""
        reading.require_counts(self.images)


@dataclass(frozen=True)
class Ended:
    """End of an attempt, as rank 0 recorded it."""

    __pydantic_config__: ClassVar = reading.OPEN

    outcome: str = ""
    reason: str = ""
    started: float = 0.0
    ended: float = 0.0
    images: int = 0
    final: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` for a time or a number that cannot be."""
        reading.require_times(self.started, self.ended)
        reading.require_counts(self.images)


@dataclass(frozen=True)
class Decided:
    """Verdict of the batch script on an attempt."""

    __pydantic_config__: ClassVar = reading.OPEN

    decision: str = ""
    reason: str = ""
    exit_code: int = 0
    memory_gb: int | None = None
    outside: bool = False
    by_slurm: bool = False
    """True where a node, srun or the controller ended the attempt, and no rank."""
    nodes: list[str] = field(default_factory=list)
    """Nodes at fault."""
    started: float = 0.0
    ended: float = 0.0

    def __post_init__(self) -> None:
        """Raise `ValueError` for a time that cannot be."""
        reading.require_times(self.started, self.ended)


@dataclass(frozen=True)
class Meeting:
    """Address on which rank 0 listens."""

    address: str
    port: int
