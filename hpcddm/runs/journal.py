"""Journal of everything that was submitted: the intent before the scheduler is called, the job id after."""

import json
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from hpcddm.errors.printing import printable
from hpcddm.files import atomic, fresh, reading
from hpcddm.runs import sharing
from hpcddm.runs.job import JobId, require_job

KEYS = {
    "intent": ("uuid", "scheduler", "site", "units", "time"),
    "submitted": ("uuid", "job"),
    "refused": ("uuid",),
    "cancelled": ("uuid",),
    "kept": ("uuid", "units"),
    "lost": ("uuid", "units", "node", "time"),
}
"""Keys of each kind of line.

An intent also names its array, and the cluster where the site names one; a cancellation its units unless it means all.
A cancellation is recorded before the scheduler is called; 'kept' revokes it where the scheduler refuses. 'lost' names a
node that ended the jobs of units, before Python began or later.
"""
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Pattern of the name of a site, a cluster or an array, and of a token: none is an option of a command."""
LOST_SECONDS = 86_400
"""Seconds after which a node that lost jobs may have been mended."""


@dataclass(frozen=True)
class Event:
    """Line of a journal; each kind has its keys."""

    __pydantic_config__: ClassVar = reading.OPEN

    event: Literal["intent", "submitted", "refused", "cancelled", "kept", "lost"]
    uuid: str
    time: float | None = None
    scheduler: Literal["slurm", "local"] | None = None
    site: str | None = None
    units: list[str] | None = None
    name: str = ""
    cluster: str | None = None
    user: str = ""
    job: str | None = None
    node: str = ""

    def __post_init__(self) -> None:
        """Raise `ValueError` for an event without one of its keys, or with a time that cannot be."""
        for key in KEYS[self.event]:
            if getattr(self, key) is None:
                raise ValueError(f"{self.event}: {key} is missing")
        reading.require_times(self.time or 0.0)
        for word in filter(None, (self.uuid, self.site, self.name, self.cluster)):
            if not WORD.fullmatch(word):
                raise ValueError(f"{printable(word, 40)} is not a name")
        for unit in self.units or ():
            reading.require_inside(unit)
        if self.job is not None:
            require_job(self.job)


@dataclass(frozen=True)
class Submission:
    """One job or array that was handed to a scheduler; element i of the array runs `units[i]`."""

    uuid: str
    scheduler: str
    site: str
    units: list[str]
    time: float
    name: str = ""
    job: JobId | None = None
    """Id that the scheduler gave; None where the submitting process died before it was recorded."""
    cluster: str | None = None
    """Cluster that it went to; None where the site names none."""
    user: str = ""
    """User who submitted it; '' in journals that do not tell."""
    cancelled: tuple[str, ...] = ()
    """Units whose jobs were cancelled through hpcddm."""

    @property
    def job_name(self) -> str:
        """Name by which the scheduler knows it: it holds the token, which no other submission has."""
        return job_name(self.name, self.uuid)


def job_name(array: str, token: str) -> str:
    """Return the name of a job."""
    return f"{array}-{token}"


class Journal:
    """The append-only `journal.jsonl` of a run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def intend(self, scheduler: str, site: str, units: list[str], name: str = "", cluster: str | None = None) -> str:
        """Record what is about to be submitted and return its UUID, which goes into the job's name."""
        token = uuid.uuid4().hex[:12]
        line = {"uuid": token, "scheduler": scheduler, "site": site, "units": units, "name": name}
        line["user"] = sharing.user()
        self._append(event="intent", **line, **({"cluster": cluster} if cluster else {}))
        return token

    def submitted(self, token: str, job: str) -> None:
        """Record the job id that the scheduler gave."""
        self._append(event="submitted", uuid=token, job=job)

    def refused(self, token: str) -> None:
        """Record that the scheduler took nothing of a submission."""
        self._append(event="refused", uuid=token)

    def cancelled(self, token: str, units: list[str] | None = None) -> None:
        """Record that the jobs of these units of a submission, or of all, are being cancelled."""
        self._append(event="cancelled", uuid=token, **({} if units is None else {"units": units}))

    def kept(self, token: str, units: list[str]) -> None:
        """Record that the jobs of these units were not cancelled after all."""
        self._append(event="kept", uuid=token, units=units)

    def lost(self, token: str, unit: str, node: str) -> None:
        """Record, once, that a job of a unit ended by the fault of a node."""
        losses = (event for event in self._events() if event.event == "lost" and event.uuid == token)
        if not any(unit in (event.units or ()) and event.node == node for event in losses):
            self._append(event="lost", uuid=token, units=[unit], node=node)

    def lost_nodes(self, site: str, cluster: str | None) -> list[str]:
        """List the nodes of a site's cluster that lost jobs within `LOST_SECONDS`, each once, the latest loss last."""
        there = {
            submission.uuid
            for submission in self.submissions()
            if (submission.site, submission.cluster) == (site, cluster)
        }
        since = time.time() - LOST_SECONDS
        losses = (event for event in self._events() if event.event == "lost" and event.uuid in there)
        nodes = [event.node for event in losses if (event.time or 0.0) > since]
        return list(dict.fromkeys(reversed(nodes)))[::-1]

    def submissions(self) -> list[Submission]:
        """List all submissions that were not refused, oldest first.

        Torn lines and lines that are no event are skipped.
        """
        submissions: dict[str, Submission] = {}
        for event in self._events():
            before, units = submissions.get(event.uuid), event.units
            if event.event == "intent":
                values = {key: getattr(event, key) for key in (*KEYS["intent"], "name", "user", "cluster")}
                submissions[event.uuid] = Submission(**values)
            elif before and event.event == "submitted":
                submissions[before.uuid] = replace(before, job=JobId(event.job))
            elif before and event.event == "cancelled":
                cancelled = before.units if units is None else units
                submissions[before.uuid] = replace(before, cancelled=(*before.cancelled, *cancelled))
            elif before and event.event == "kept":
                kept = tuple(unit for unit in before.cancelled if unit not in (units or ()))
                submissions[before.uuid] = replace(before, cancelled=kept)
            elif before and event.event == "refused":
                del submissions[before.uuid]
        return list(submissions.values())

    def is_cancelled(self, token: str, unit: str) -> bool:
        """Tell if the job of a unit in one submission was cancelled."""
        return any(submission.uuid == token and unit in submission.cancelled for submission in self.submissions())

    def _append(self, **event: object) -> None:
        atomic.append_line(self._path, json.dumps(event | {"time": time.time()}))

    def faults(self) -> list[str]:
        """List the errors about lines that are passed over; a torn line, which is not JSON, is none."""
        errors = []
        for number, line in enumerate(self._lines(), start=1):
            try:
                reading.parse(line, Event)
            except ValueError as error:
                if _is_json(line):
                    errors.append(f"{self._path}: line {number} is not an event and passed over ({error}); remove it")
        return errors

    def _events(self) -> list[Event]:
        events = []
        for line in self._lines():
            with suppress(ValueError):
                events.append(reading.parse(line, Event))
        return events

    def _lines(self) -> list[bytes]:
        # Another client may have written the first line since somebody looked for the file here.
        if not fresh.exists(self._path):
            return []
        return reading.read_bytes(self._path, reading.RESULT_BYTES).splitlines()


def current(submissions: list[Submission]) -> list[Submission]:
    """Select the submissions that can still be in a queue.

    A unit is submitted anew at the same site only after its job has left the queue there, so of the submissions of a
    unit the last one counts; one without a recorded job id may have come late and always counts.
    """
    last = {(submission.site, unit): submission.uuid for submission in submissions for unit in submission.units}
    latest = set(last.values())
    return [submission for submission in submissions if submission.job is None or submission.uuid in latest]


def _is_json(line: bytes) -> bool:
    try:
        reading.parse(line)
    except ValueError:
        return False
    return True
