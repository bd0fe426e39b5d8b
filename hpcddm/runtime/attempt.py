"""One attempt at a unit: its folder of logs, where its ranks meet, and the record of how it ended."""

import os
import re
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.rundir import atomic
from hpcddm.runtime.ranks import Ranks
from hpcddm.runtime.stopping import Stopped

MEETING_SECONDS = 300


@dataclass(frozen=True)
class Attempt:
    """The folder `logs/<stage>/<unit>/attempt-N`, shared by all ranks of one job."""

    folder: Path
    number: int
    started: float

    def redirect_output(self, rank: int) -> None:
        """Send everything that this process prints, C++ libraries included, to the rank's log."""
        sys.stdout.flush()
        sys.stderr.flush()
        descriptor = os.open(self.folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)

    def close(self, outcome: str, reason: str = "") -> None:
        """Record how the attempt ended; the first word stands."""
        ended = {"outcome": outcome, "reason": reason, "started": self.started, "ended": time.time()}
        if atomic.read_json(self.folder / "ended.json") is None:
            atomic.write_json(self.folder / "ended.json", ended)

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
            if (self.folder / "ended.json").exists():
                raise Stopped("rank 0 found nothing to do, or failed")
            time.sleep(0.05)
        raise UserError(f"{path}: rank 0 did not announce itself in {MEETING_SECONDS} s on {socket.gethostname()}")


def open_attempt(logs: Path, ranks: Ranks) -> Attempt:
    """Rank 0 claims the next number; the other ranks find the newest folder of their owner."""
    if ranks.rank == 0:
        return _claim(logs, ranks.owner)
    deadline = time.time() + MEETING_SECONDS
    while time.time() < deadline:
        for number, folder in reversed(attempts(logs)):
            owner = atomic.read_json(folder / "owner.json")
            if owner and owner["owner"] == ranks.owner:
                return Attempt(folder, number, owner["started"])
        time.sleep(0.05)
    raise UserError(f"{logs}: rank 0 of {ranks.owner} opened no attempt in {MEETING_SECONDS} s; did it start?")


def attempts(logs: Path) -> list[tuple[int, Path]]:
    """All attempts at a unit, oldest first; other folders, such as a copy that somebody made, are passed over."""
    named = [(re.fullmatch("attempt-([0-9]+)", folder.name), folder) for folder in logs.glob("attempt-*")]
    return sorted((int(match[1]), folder) for match, folder in named if match)


def _claim(logs: Path, owner: str) -> Attempt:
    logs.mkdir(parents=True, exist_ok=True)
    number = len(attempts(logs)) + 1
    while True:
        folder = logs / f"attempt-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            continue
        started = time.time()
        identity = {"owner": owner, "host": socket.gethostname(), "pid": os.getpid(), "started": started}
        atomic.write_json(folder / "owner.json", identity)
        return Attempt(folder, number, started)
