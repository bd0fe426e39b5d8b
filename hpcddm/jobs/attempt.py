"""Attempt at a unit: its folder of logs, the rendezvous of its ranks, and the record of its end."""

import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcddm.files import atomic, fresh, inside
from hpcddm.files.reading import Unreadable
from hpcddm.jobs.environment import Ranks
from hpcddm.jobs.failure_cause import write_rank_ending
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.record_types import Ended, Meeting, Owner
from hpcddm.jobs.stopping import Stopped
from hpcddm.runs import provenance

MEETING_SECONDS = 300
OWNER, BEGUN, ENDED, VERDICT = "owner.json", "begun.json", "ended.json", "verdict.json"
"""Files of an attempt's record: its owner, its first step, its end, and the verdict of the batch script."""

RESERVE, RESERVED_BYTES = ".reserve", 65536
LOOK_BACK = 10
"""Number of newest attempts among which a rank searches that of its owner."""
POLL_SECONDS, LONGEST_POLL_SECONDS = 0.2, 2.0
"""First and longest pause between two reads of a file of rank 0; the pauses grow."""
SUPERSEDED = "a later execution of the same job has begun"
EXECUTION = re.compile(r"slurm-(?P<name>.+)-(?P<array>[0-9]+)_(?P<element>[0-9]+)\.(?P<restart>[0-9]+)")
"""Pattern of the owner of an attempt under Slurm."""


class Superseded(Stopped):
    """Stop because a later execution of the same job has begun, so that this one may publish nothing any more."""


@dataclass
class Attempt:
    """Attempt in the folder `logs/<stage>/<unit>/attempt-N`, which all ranks of one job share."""

    folder: Path
    number: int
    owner: str
    started: float
    results: dict[str, Any] = field(default_factory=dict)
    """Entries of the record of the end beside the outcome, such as the number of images seen."""
    origin: dict[str, Any] = field(default_factory=dict)
    """The code and the packages of rank 0, as manifests record them."""
    changes: list[str] = field(default_factory=list)
    """Differences from the attempts that this one continues: 'since attempt 2 torch 2.12.0 -> 2.13.0'."""
    ranks: Ranks | None = field(default=None, compare=False)
    """Rank and world size of this process in the attempt."""

    def redirect_output(self, rank: int) -> None:
        """Send everything that this process prints, C++ libraries included, to the rank's log."""
        sys.stdout.flush()
        sys.stderr.flush()
        descriptor = inside.open_file(self.folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)

    def begin(self, images: int, trajectory: str) -> None:
        """Record the first step: the number of images seen before it, and the trajectory of the training."""
        begun = {"images": images, "trajectory": trajectory, "time": time.time()}
        atomic.write_json(self.folder / BEGUN, begun, durable=False)

    def speak(self, outcome: Outcome, reason: str, exit_code: int | None = None) -> None:
        """Record how this rank ended."""
        if self.ranks:
            write_rank_ending(self.folder, self.ranks, outcome, reason, exit_code)

    def close(self, outcome: Outcome, reason: str = "", exit_code: int | None = None) -> None:
        """Record how the attempt ended, unless that is recorded already; a rank that fails also records its own end."""
        ended = {"outcome": outcome, "reason": reason, "started": self.started, "ended": time.time(), **self.results}
        # On a full disk the last word takes the room that was kept for it.
        inside.remove(self.folder / RESERVE)
        if not _record(self.folder / ENDED, Ended):
            atomic.write_json(self.folder / ENDED, ended)
        if outcome == Outcome.FAILED:
            self.speak(outcome, reason, exit_code)

    def is_superseded(self) -> bool:
        """Tell if a later execution of the same job has begun."""
        later = (folder for number, folder in attempts(self.folder.parent) if number > self.number)
        return any(follows(owner_of(folder), self.owner) for folder in later)

    def succeeds(self, owner: str) -> bool:
        """Tell if `owner` is an earlier execution of this attempt's job."""
        return follows(self.owner, owner)

    def require_ownership(self) -> None:
        """Raise `Superseded` when the unit belongs to a later attempt; to be called before anything is published."""
        if self.is_superseded():
            raise Superseded(SUPERSEDED)

    def announce_meeting(self, address: str, port: int) -> None:
        """Publish the address on which rank 0 listens."""
        atomic.write_json(self.folder / "meeting.json", {"address": address, "port": port})

    def meeting(self) -> tuple[str, int]:
        """Wait for the address and port on which rank 0 listens, and return them.

        Raises `Stopped` when rank 0 has left before, `TimeoutError` with the path when nothing came.
        """
        path = self.folder / "meeting.json"
        for _ in _polls():
            place: Meeting | None = fresh.read_json(path, Meeting)
            if place:
                return place.address, place.port
            if fresh.exists(self.folder / ENDED):
                raise Stopped("rank 0 found nothing to do, or failed")
        raise TimeoutError(f"{path}: rank 0 did not announce itself in {MEETING_SECONDS} s on {socket.gethostname()}")


def open_attempt(
    logs: Path, ranks: Ranks, allocation: dict[str, Any] | None = None, origin: dict[str, Any] | None = None
) -> Attempt:
    """Open the attempt: rank 0 claims the next number, the other ranks wait for the newest folder of their job.

    origin: versions of code and packages, which rank 0 records.
    """
    if ranks.rank == 0:
        return replace(_claim(logs, ranks.owner, allocation or {}, origin or {}), ranks=ranks)
    foreign: set[Path] = set()
    for _ in _polls():
        attempt = find_attempt(logs, ranks.owner, foreign)
        if attempt:
            return replace(attempt, ranks=ranks)
    # No UserError: a slow file system is worth another attempt.
    raise TimeoutError(f"{logs}: rank 0 of {ranks.owner} opened no attempt in {MEETING_SECONDS} s; did it start?")


def _polls() -> Iterator[None]:
    """Yield at every time for the next read of a file of rank 0, for `MEETING_SECONDS` in all."""
    pause, deadline = POLL_SECONDS, time.time() + MEETING_SECONDS
    while time.time() < deadline:
        yield
        time.sleep(pause)
        pause = min(1.2 * pause, LONGEST_POLL_SECONDS)


def find_attempt(logs: Path, owner: str, foreign: set[Path] | None = None) -> Attempt | None:
    """Find the newest attempt of an owner among the last `LOOK_BACK`; None where there is none.

    foreign: folders of others, which are not read again; new ones are added.
    """
    foreign = set() if foreign is None else foreign
    for number, folder in attempts(logs)[: -LOOK_BACK - 1 : -1]:
        record = None if folder in foreign else _record(folder / OWNER, Owner)
        if record and record.get("owner") == owner:
            return Attempt(folder, number, owner, record.get("started", 0.0))
        if record:
            foreign.add(folder)
    return None


def attempts(logs: Path) -> list[tuple[int, Path]]:
    """List all attempts at a unit as (number, folder), oldest first; folders with other names are skipped."""
    named = [(re.fullmatch("attempt-([0-9]+)", name), logs / name) for name in fresh.names(logs)]
    return sorted((int(match[1]), folder) for match, folder in named if match)


def owner_of(folder: Path) -> str:
    """Return the owner of the attempt in a folder, or '' where none is recorded."""
    return str((_record(folder / OWNER, Owner) or {}).get("owner", ""))


def _record(path: Path, shape: Any) -> dict[str, Any] | None:
    """Read a record of an attempt; None where it is missing or damaged."""
    try:
        return fresh.read_mapping(path, shape)
    except Unreadable:
        return None


def submission_of(owner: str) -> tuple[str, str] | None:
    """Return the name of the array and the element, which all executions of an element share; None without Slurm."""
    match = EXECUTION.fullmatch(owner)
    return (match["name"], match["element"]) if match else None


def follows(later: str, earlier: str) -> bool:
    """Tell if owner `later` is a later execution of the job of `earlier`, requeued or resubmitted under a new id."""
    later_match, earlier_match = EXECUTION.fullmatch(later), EXECUTION.fullmatch(earlier)
    if not later_match or not earlier_match or submission_of(later) != submission_of(earlier):
        return False
    order = [(int(match["array"]), int(match["restart"])) for match in (later_match, earlier_match)]
    return order[0] > order[1]


def _claim(logs: Path, owner: str, allocation: dict[str, Any], origin: dict[str, Any]) -> Attempt:
    inside.make(logs)
    before = attempts(logs)
    number = len(before) + 1
    changes = _changes(before[-1][1], origin) if before else []
    while True:
        folder = logs / f"attempt-{number}"
        try:
            with inside.opened(logs) as descriptor:
                os.mkdir(folder.name, dir_fd=descriptor)
        except FileExistsError:
            number += 1
            continue
        started = allocation.get("started", time.time())
        identity = {"owner": owner, "host": socket.gethostname(), "pid": os.getpid(), "started": started}
        with suppress(OSError):
            # Zeros would take no room where the file system compresses.
            with open(inside.open_file(folder / RESERVE, os.O_WRONLY | os.O_CREAT), "wb") as file:
                file.write(os.urandom(RESERVED_BYTES))
        identity |= {"origin": origin, "changes": changes}
        atomic.write_json(folder / OWNER, allocation | identity)
        return Attempt(folder, number, owner, started, origin=origin, changes=changes)


def _changes(before: Path, origin: dict[str, Any]) -> list[str]:
    """List what the attempt before recorded as changed, then what differs from it; after a complete one nothing."""
    record, ended = _record(before / OWNER, Owner) or {}, _record(before / ENDED, Ended) or {}
    if not record.get("origin") or not origin:
        return []
    if ended.get("outcome") == Outcome.COMPLETE:
        return []
    number = before.name.removeprefix("attempt-")
    new = provenance.changes(record["origin"], origin)
    return [*record.get("changes", []), *(f"since attempt {number} {change}" for change in new)]
