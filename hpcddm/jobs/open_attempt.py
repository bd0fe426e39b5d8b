"""Opening of an attempt: rank 0 claims the next number, and the other ranks of the job find the attempt."""

import os
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.files import atomic, guarded_writes
from hpcddm.jobs.attempt import (
    ENDED,
    OWNER,
    RENDEZVOUS_SECONDS,
    RESERVE,
    Attempt,
    AttemptEnd,
    Owner,
    list_attempts,
    polls,
    read_attempt_file,
)
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.outcome import Outcome
from hpcddm.runs import provenance

RESERVED_BYTES = 65536
LOOK_BACK = 10
"""Number of newest attempts that a rank searches for its job's attempt."""


def open_attempt(
    logs: Path, ranks: Ranks, allocation: dict[str, Any] | None = None, origin: dict[str, Any] | None = None
) -> Attempt:
    """Open an attempt: rank 0 claims the next number, and the other ranks wait for the attempt of their job.

    Args:
        logs: Folder of the unit's logs.
        ranks: Rank and owner of this process.
        allocation: Description of the job's allocation, which rank 0 records.
        origin: Versions of code and packages, which rank 0 records.

    Raises:
        TimeoutError: If rank 0 does not open an attempt within `RENDEZVOUS_SECONDS`.
    """
    if ranks.rank == 0:
        return replace(_claim(logs, ranks.owner, allocation or {}, origin or {}), ranks=ranks)
    foreign: set[Path] = set()
    for _ in polls():
        if attempt := find_attempt(logs, ranks.owner, foreign):
            return replace(attempt, ranks=ranks)
    # Not a UserError: a slow file system justifies another attempt.
    raise TimeoutError(f"{logs}: rank 0 of {ranks.owner} opened no attempt in {RENDEZVOUS_SECONDS} s; did it start?")


def find_attempt(logs: Path, owner: str, foreign: set[Path] | None = None) -> Attempt | None:
    """Find the newest attempt of an owner among the last `LOOK_BACK` attempts; None if there is none.

    Args:
        logs: Folder of the unit's logs.
        owner: Name of the job's execution.
        foreign: Folders of other owners, which are not read again; newly found ones are added.
    """
    foreign = set() if foreign is None else foreign
    for number, folder in list_attempts(logs)[: -LOOK_BACK - 1 : -1]:
        record = None if folder in foreign else read_attempt_file(folder / OWNER, Owner)
        if record and record.get("owner") == owner:
            return Attempt(folder, number, owner, record.get("started", 0.0))
        if record:
            foreign.add(folder)
    return None


def _claim(logs: Path, owner: str, allocation: dict[str, Any], origin: dict[str, Any]) -> Attempt:
    guarded_writes.make_folder(logs)
    before = list_attempts(logs)
    number = len(before) + 1
    changes = _changes(before[-1][1], origin) if before else []
    while True:
        folder = logs / f"attempt-{number}"
        try:
            with guarded_writes.open_folder(logs) as descriptor:
                os.mkdir(folder.name, dir_fd=descriptor)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise UserError(f"{logs}: no attempt can be recorded there: {error.strerror}") from error
        started = allocation.get("started", time.time())
        identity = {"owner": owner, "host": socket.gethostname(), "pid": os.getpid(), "started": started}
        with suppress(OSError):
            # Random bytes, because a file system with compression would not reserve space for zeros.
            with open(guarded_writes.open_file(folder / RESERVE, os.O_WRONLY | os.O_CREAT), "wb") as file:
                file.write(os.urandom(RESERVED_BYTES))
        identity |= {"origin": origin, "changes": changes}
        atomic.write_json(folder / OWNER, allocation | identity)
        return Attempt(folder, number, owner, started, origin=origin, changes=changes)


def _changes(before: Path, origin: dict[str, Any]) -> list[str]:
    """List the previous attempt's recorded changes, then the differences from it; empty after a complete attempt."""
    record, ended = read_attempt_file(before / OWNER, Owner) or {}, read_attempt_file(before / ENDED, AttemptEnd) or {}
    if not record.get("origin") or not origin or ended.get("outcome") == Outcome.COMPLETE:
        return []
    number = before.name.removeprefix("attempt-")
    new = provenance.changes(record["origin"], origin)
    return [*record.get("changes", []), *(f"since attempt {number} {change}" for change in new)]
