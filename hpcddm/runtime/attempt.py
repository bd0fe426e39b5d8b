"""One attempt at a unit: its folder of logs, where its ranks meet, and the record of how it ended."""

import os
import re
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.rundir import atomic
from hpcddm.runtime.ranks import Ranks
from hpcddm.runtime.stopping import Stopped

MEETING_SECONDS = 300
OWNER, BEGUN, ENDED, VERDICT = "owner.json", "begun.json", "ended.json", "verdict.json"
"""The record of an attempt: who makes it, what it continued from, its last word, and what its job did then."""

RESERVE, RESERVED_BYTES = ".reserve", 65536


class Superseded(Stopped):
    """A later attempt at the unit has begun: this one owns it no more and may publish nothing."""


@dataclass
class Attempt:
    """The folder `logs/<stage>/<unit>/attempt-N`, shared by all ranks of one job."""

    folder: Path
    number: int
    owner: str
    started: float
    facts: dict[str, Any] = field(default_factory=dict)
    """What the last word will say beside the outcome: the images that were seen."""

    def redirect_output(self, rank: int) -> None:
        """Send everything that this process prints, C++ libraries included, to the rank's log."""
        sys.stdout.flush()
        sys.stderr.flush()
        descriptor = os.open(self.folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)

    def begin(self, images: int) -> None:
        """Record that the first step is made, and how many images were seen before it."""
        atomic.write_json(self.folder / BEGUN, {"images": images, "time": time.time()}, durable=False)

    def close(self, outcome: str, reason: str = "") -> None:
        """Record how the attempt ended; the first word stands."""
        ended = {"outcome": outcome, "reason": reason, "started": self.started, "ended": time.time(), **self.facts}
        # On a full disk the last word takes the room that was kept for it.
        (self.folder / RESERVE).unlink(missing_ok=True)
        if atomic.read_json(self.folder / ENDED) is None:
            atomic.write_json(self.folder / ENDED, ended)

    def is_superseded(self) -> bool:
        """Whether a later execution of the same job has begun; this one's node is dead to Slurm then."""
        later = (folder for number, folder in attempts(self.folder.parent) if number > self.number)
        return any(self.succeeds(owner_of(folder)) for folder in later)

    def succeeds(self, owner: str) -> bool:
        """Whether `owner` is an earlier execution of this attempt's job."""
        return owner != self.owner and _same_job(owner, self.owner)

    def require_ownership(self) -> None:
        """Raise `Superseded` when the unit belongs to a later attempt; asked before anything is published."""
        if self.is_superseded():
            raise Superseded("a later attempt of the same job has begun")

    def announce_meeting(self, address: str, port: int) -> None:
        """Rank 0 tells where it listens."""
        atomic.write_json(self.folder / "meeting.json", {"address": address, "port": port})

    def meeting(self) -> tuple[str, int]:
        """Where rank 0 listens; waits for it, and for the file system to show it.

        Raises `Stopped` when rank 0 has left before, `UserError` with the path when nothing came.
        """
        path, deadline = self.folder / "meeting.json", time.time() + MEETING_SECONDS
        while time.time() < deadline:
            place = atomic.read_json(path)
            if place is not None:
                return place["address"], place["port"]
            if (self.folder / ENDED).exists():
                raise Stopped("rank 0 found nothing to do, or failed")
            time.sleep(0.05)
        raise UserError(f"{path}: rank 0 did not announce itself in {MEETING_SECONDS} s on {socket.gethostname()}")


def open_attempt(logs: Path, ranks: Ranks, allocation: dict[str, Any] | None = None) -> Attempt:
    """Rank 0 claims the next number; the other ranks find the newest folder of their owner."""
    if ranks.rank == 0:
        return _claim(logs, ranks.owner, allocation or {})
    deadline = time.time() + MEETING_SECONDS
    while time.time() < deadline:
        found = find_attempt(logs, ranks.owner)
        if found:
            return found
        time.sleep(0.05)
    raise UserError(f"{logs}: rank 0 of {ranks.owner} opened no attempt in {MEETING_SECONDS} s; did it start?")


def find_attempt(logs: Path, owner: str) -> Attempt | None:
    """The newest attempt of an owner."""
    for number, folder in reversed(attempts(logs)):
        record = atomic.read_json(folder / OWNER)
        if record and record["owner"] == owner:
            return Attempt(folder, number, owner, record["started"])
    return None


def attempts(logs: Path) -> list[tuple[int, Path]]:
    """All attempts at a unit, oldest first; other folders, such as a copy that somebody made, are passed over."""
    named = [(re.fullmatch("attempt-([0-9]+)", folder.name), folder) for folder in logs.glob("attempt-*")]
    return sorted((int(match[1]), folder) for match, folder in named if match)


def owner_of(folder: Path) -> str:
    """Who makes the attempt in a folder, or ''."""
    record = atomic.read_json(folder / OWNER)
    return str(record.get("owner", "")) if isinstance(record, dict) else ""


def submission_of(owner: str) -> str:
    """What all executions of one element have in common, however often it was requeued or submitted by itself.

    An owner is slurm-<name>-<token>-<A>_<T>.<restart>; A changes where a job comes back by submitting itself.
    """
    return re.sub(r"-[0-9]+_([0-9]+)\.[0-9]+$", r"-\1", owner)


def _same_job(one: str, other: str) -> bool:
    return one.startswith("slurm-") and submission_of(one) == submission_of(other)


def _claim(logs: Path, owner: str, allocation: dict[str, Any]) -> Attempt:
    logs.mkdir(parents=True, exist_ok=True)
    number = len(attempts(logs)) + 1
    while True:
        folder = logs / f"attempt-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            continue
        started = allocation.get("started", time.time())
        identity = {"owner": owner, "host": socket.gethostname(), "pid": os.getpid(), "started": started}
        (folder / RESERVE).write_bytes(bytes(RESERVED_BYTES))
        atomic.write_json(folder / OWNER, allocation | identity)
        return Attempt(folder, number, owner, started)
