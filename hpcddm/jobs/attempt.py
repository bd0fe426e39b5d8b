"""Attempt at a unit: its log folder, the rendezvous of its ranks, and the record of its end."""

import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from hpcddm.files import atomic, guarded_writes, nfs_reads
from hpcddm.files.checked_reads import Count, OpenRecord, Rule, Timestamp, usable
from hpcddm.jobs.failure_cause import write_rank_end
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.stopping import Stopped
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


RENDEZVOUS_SECONDS = 300
OWNER, BEGUN, ENDED, VERDICT = "owner.json", "first_step.json", "ended.json", "verdict.json"
"""Files of an attempt's record: its owner, its first step, its end, and the verdict of the batch script."""

RESERVE = ".reserve"
"""File that reserves disk space for the record of the end."""
POLL_SECONDS, MAX_POLL_SECONDS = 0.2, 2.0
"""First and longest pause between two reads of a file from rank 0; the pauses grow."""
SUPERSEDED = "a later execution of the same job has begun"
EXECUTION = re.compile(r"slurm-(?P<name>.+)-(?P<array>[0-9]+)_(?P<element>[0-9]+)\.(?P<restart>[0-9]+)")
"""Pattern of an attempt's owner under Slurm."""


class Superseded(Stopped):
    """Stop because a later execution of the same job has started; this one must not publish anything."""


@dataclass
class Attempt:
    """Attempt at a unit, which all ranks of one job share."""

    folder: Path
    """Folder of the attempt, `logs/<stage>/<unit>/attempt-N`."""
    number: int
    owner: str
    """Name of the job's execution, which all its ranks share."""
    started: float
    """Start of the job, in seconds since the epoch."""
    results: dict[str, Any] = field(default_factory=dict)
    """Further entries for the record of the end, such as the number of images processed."""
    origin: dict[str, Any] = field(default_factory=dict)
    """Code and package versions of rank 0, as manifests record them."""
    changes: list[str] = field(default_factory=list)
    """Differences from the attempts that this one continues, such as 'since attempt 2 torch 2.12.0 -> 2.13.0'."""
    ranks: Ranks | None = field(default=None, compare=False)
    """Rank and world size of this process in the attempt."""

    def redirect_output(self, rank: int) -> None:
        """Redirect the output of this process, including C++ libraries, to the rank's log."""
        sys.stdout.flush()
        sys.stderr.flush()
        descriptor = guarded_writes.open_file(self.folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)

    def begin(self, images: int, trajectory: str) -> None:
        """Record the first step of a training.

        Args:
            images: Number of images processed before this attempt.
            trajectory: Hash of the training's settings and inputs.
        """
        begun = {"images": images, "trajectory": trajectory, "time": time.time()}
        atomic.write_json(self.folder / BEGUN, begun, durable=False)

    def report(self, outcome: Outcome, reason: str, exit_code: int | None = None) -> None:
        """Record the end of this rank.

        Args:
            outcome: Outcome of this rank.
            reason: Reason for the outcome.
            exit_code: Exit code of this rank.
        """
        if self.ranks:
            write_rank_end(self.folder, self.ranks, outcome, reason, exit_code, self.results.get("final", False))

    def close(self, outcome: Outcome, reason: str = "", exit_code: int | None = None) -> None:
        """Record the end of the attempt unless it is already recorded; a failed rank also records its own end.

        Args:
            outcome: Outcome of the attempt.
            reason: Reason for the outcome.
            exit_code: Exit code of this rank.
        """
        ended = {"outcome": outcome, "reason": reason, "started": self.started, "ended": time.time(), **self.results}
        # On a full disk the record uses the reserved space.
        guarded_writes.remove(self.folder / RESERVE)
        if not read_attempt_file(self.folder / ENDED, AttemptEnd):
            atomic.write_json(self.folder / ENDED, ended)
        if outcome == Outcome.FAILED:
            self.report(outcome, reason, exit_code)

    def is_superseded(self) -> bool:
        """Return True if a later execution of the same job has started."""
        later = (folder for number, folder in list_attempts(self.folder.parent) if number > self.number)
        return any(is_later_attempt(owner_of(folder), self.owner) for folder in later)

    def require_ownership(self) -> None:
        """Check, before anything is published, that the unit still belongs to this attempt.

        Raises:
            Superseded: If a later execution of the same job has started.
        """
        if self.is_superseded():
            raise Superseded(SUPERSEDED)

    def publish_address(self, address: str, port: int) -> None:
        """Publish the address on which rank 0 listens."""
        atomic.write_json(self.folder / "rendezvous.json", {"address": address, "port": port})

    def wait_for_address(self) -> tuple[str, int]:
        """Wait for the address and port on which rank 0 listens, and return them.

        Raises:
            Stopped: If rank 0 has ended.
            TimeoutError: If rank 0 does not publish its address within `RENDEZVOUS_SECONDS`.
        """
        path = self.folder / "rendezvous.json"
        for _ in polls():
            place: RendezvousAddress | None = nfs_reads.read_json(path, RendezvousAddress)
            if place:
                return place.address, place.port
            if nfs_reads.exists(self.folder / ENDED):
                raise Stopped("rank 0 found nothing to do, or failed")
        raise TimeoutError(
            f"{path}: rank 0 did not announce itself in {RENDEZVOUS_SECONDS} s on {socket.gethostname()}"
        )


def polls() -> Iterator[None]:
    """Yield before each read of a file from rank 0, with growing pauses, for `RENDEZVOUS_SECONDS` in total."""
    pause, deadline = POLL_SECONDS, time.time() + RENDEZVOUS_SECONDS
    while time.time() < deadline:
        yield
        time.sleep(pause)
        pause = min(1.2 * pause, MAX_POLL_SECONDS)


def list_attempts(logs: Path) -> list[tuple[int, Path]]:
    """List all attempts at a unit, oldest first.

    Args:
        logs: Folder of the unit's logs.

    Returns:
        The number and the folder of each attempt.
    """
    named = [(re.fullmatch("attempt-([0-9]+)", name), logs / name) for name in nfs_reads.list_names(logs)]
    return sorted((int(match[1]), folder) for match, folder in named if match)


def owner_of(folder: Path) -> str:
    """Return the owner of the attempt in a folder; '' if none is recorded."""
    return str((read_attempt_file(folder / OWNER, Owner) or {}).get("owner", ""))


def read_attempt_file(path: Path, shape: Any) -> dict[str, Any] | None:
    """Read a file of an attempt's record as the type `shape`; None if it is missing or damaged."""
    return usable(nfs_reads.read_mapping, path, shape)


def submission_of(owner: str) -> tuple[str, str] | None:
    """Return array name and element of an owner, which all executions of an element share; None without Slurm."""
    match = EXECUTION.fullmatch(owner)
    return (match["name"], match["element"]) if match else None


def is_later_attempt(later: str, earlier: str) -> bool:
    """Return True if an owner is a later execution of another owner's job.

    Args:
        later: The owner, such as 'slurm-digits-train-0123456789ab-12_3.1'; a requeue raises the number after the dot,
            a resubmission the job id.
        earlier: The other owner.
    """
    later_match, earlier_match = EXECUTION.fullmatch(later), EXECUTION.fullmatch(earlier)
    if not later_match or not earlier_match or submission_of(later) != submission_of(earlier):
        return False
    order = [(int(match["array"]), int(match["restart"])) for match in (later_match, earlier_match)]
    return order[0] > order[1]
