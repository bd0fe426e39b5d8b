"""Journal of all submissions: the intent is recorded before the scheduler is called, the job id afterwards."""

import json
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from hpcddm.errors.printing import printable
from hpcddm.files import atomic, checked_reads, nfs_reads
from hpcddm.files.checked_reads import InnerPath, OpenRecord, Rule, Timestamp
from hpcddm.runs import group_permissions
from hpcddm.runs.job import JobId, require_job

KEYS = {
    "intent": ("uuid", "scheduler", "site", "units", "time"),
    "submitted": ("uuid", "job"),
    "refused": ("uuid",),
    "cancelled": ("uuid",),
    "kept": ("uuid", "units"),
    "lost": ("uuid", "units", "node", "time"),
}
"""Required keys of each kind of line.

An 'intent' also names its array, and its cluster if the site names one. A 'cancelled' line lists its units unless it
means all. It is recorded before the scheduler is called, and 'kept' revokes it if the scheduler refuses. 'lost' names a
node that ended the jobs of units, before Python started or later.
"""
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Pattern of names of sites, clusters and arrays, and of tokens: no match can be read as an option of a command."""
NODE_LOSS_SECONDS = 86_400
"""Seconds after which a node that lost jobs is assumed to be repaired."""


@dataclass(frozen=True)
class Event(OpenRecord):
    """One line of a journal; `KEYS` lists the required keys of each kind."""

    event: Literal["intent", "submitted", "refused", "cancelled", "kept", "lost"]
    uuid: str
    time: Timestamp | None = None
    scheduler: Literal["slurm", "local"] | None = None
    site: str | None = None
    units: list[InnerPath] | None = None
    name: str = ""
    cluster: str | None = None
    user: str = ""
    job: Annotated[str, Rule(require_job)] | None = None
    node: str = ""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a missing key or an invalid value."""
        for key in KEYS[self.event]:
            if getattr(self, key) is None:
                raise ValueError(f"{self.event}: {key} is missing")
        for word in filter(None, (self.uuid, self.site, self.name, self.cluster)):
            if not WORD.fullmatch(word):
                raise ValueError(f"{printable(word, 40)} is not a name")


@dataclass(frozen=True)
class Submission:
    """One submitted job or array; element i of the array runs `units[i]`."""

    uuid: str
    scheduler: str
    site: str
    units: list[str]
    time: float
    name: str = ""
    job: JobId | None = None
    """Id that the scheduler assigned; None if the submitting process died before recording it."""
    cluster: str | None = None
    """Cluster to which it was submitted; None if the site names none."""
    user: str = ""
    """User who submitted it; '' in journals without this entry."""
    cancelled: tuple[str, ...] = ()
    """Units whose jobs were cancelled through hpcddm."""

    @property
    def job_name(self) -> str:
        """Name of the job in the scheduler, which contains the submission's unique token."""
        return job_name(self.name, self.uuid)


def job_name(array: str, token: str) -> str:
    """Return the name of a job in the scheduler: the array's name and the submission's token."""
    return f"{array}-{token}"


class Journal:
    """The append-only file `journal.jsonl` of a run.

    Args:
        path: The file; it need not exist yet.

    Examples:
        >>> import tempfile
        >>> journal = Journal(Path(tempfile.mkdtemp(), "journal.jsonl"))
        >>> token = journal.record_intent("slurm", "site_a", ["train/expert-00", "train/expert-01"])
        >>> journal.record_submitted(token, "81235")
        >>> journal.record_cancelled(token, ["train/expert-01"])
        >>> submission = journal.submissions()[0]
        >>> submission.job, submission.cancelled
        ('81235', ('train/expert-01',))
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def record_intent(
        self, scheduler: str, site: str, units: list[str], name: str = "", cluster: str | None = None
    ) -> str:
        """Record a submission before the scheduler is called.

        Args:
            scheduler: Scheduler of the site, `slurm` or `local`.
            site: Name of the site.
            units: Names of the units, in the order of the array's elements.
            name: Name of the array.
            cluster: Cluster of the site that receives the array; None if the site names none.

        Returns:
            The token of the submission, which becomes part of the job's name.
        """
        token = uuid.uuid4().hex[:12]
        line = {"uuid": token, "scheduler": scheduler, "site": site, "units": units, "name": name}
        line["user"] = group_permissions.current_user()
        self._append(event="intent", **line, **({"cluster": cluster} if cluster else {}))
        return token

    def record_submitted(self, token: str, job: str) -> None:
        """Record the job id that the scheduler assigned to a submission."""
        self._append(event="submitted", uuid=token, job=job)

    def record_refused(self, token: str) -> None:
        """Record that the scheduler refused a submission."""
        self._append(event="refused", uuid=token)

    def record_cancelled(self, token: str, units: list[str] | None = None) -> None:
        """Record, before the scheduler is called, that jobs of a submission are cancelled.

        Args:
            token: Token of the submission.
            units: Units whose jobs are cancelled; None for all units of the submission.
        """
        self._append(event="cancelled", uuid=token, **({} if units is None else {"units": units}))

    def record_not_cancelled(self, token: str, units: list[str]) -> None:
        """Revoke the cancellation of these units' jobs, because the scheduler refused it."""
        self._append(event="kept", uuid=token, units=units)

    def record_node_loss(self, token: str, unit: str, node: str) -> None:
        """Record that a faulty node ended a unit's job; a repeated call records nothing."""
        losses = (event for event in self._events() if event.event == "lost" and event.uuid == token)
        if not any(unit in (event.units or ()) and event.node == node for event in losses):
            self._append(event="lost", uuid=token, units=[unit], node=node)

    def lost_nodes(self, site: str, cluster: str | None) -> list[str]:
        """List the nodes that ended jobs within `NODE_LOSS_SECONDS`, each once, the latest loss last.

        Args:
            site: Name of the site.
            cluster: Cluster of the site; None if the site names none.
        """
        there = {one.uuid for one in self.submissions() if (one.site, one.cluster) == (site, cluster)}
        since = time.time() - NODE_LOSS_SECONDS
        losses = (event for event in self._events() if event.event == "lost" and event.uuid in there)
        nodes = [event.node for event in losses if (event.time or 0.0) > since]
        return list(dict.fromkeys(reversed(nodes)))[::-1]

    def submissions(self) -> list[Submission]:
        """List all submissions that the scheduler did not refuse, oldest first.

        Incomplete lines and lines that are not an event are skipped.
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
        """Return True if the job of a unit in a submission was cancelled."""
        return any(submission.uuid == token and unit in submission.cancelled for submission in self.submissions())

    def _append(self, **event: object) -> None:
        atomic.append_line(self._path, json.dumps(event | {"time": time.time()}))

    def line_errors(self) -> list[str]:
        """List errors about lines that are JSON but not an event; incomplete lines cause no error."""
        errors = []
        for number, line in enumerate(self._lines(), start=1):
            try:
                checked_reads.parse_json(line, Event)
            except json.JSONDecodeError:
                # Whoever wrote it was killed.
                continue
            except ValueError as error:
                errors.append(f"{self._path}: line {number} is not an event and passed over ({error}); remove it")
        return errors

    def _events(self) -> list[Event]:
        events = []
        for line in self._lines():
            with suppress(ValueError):
                events.append(checked_reads.parse_json(line, Event))
        return events

    def _lines(self) -> list[bytes]:
        # Another client may have written the first line after this client looked for the file.
        if not nfs_reads.exists(self._path):
            return []
        return checked_reads.read_bytes(self._path, checked_reads.RESULT_BYTES).splitlines()


def select_current(submissions: list[Submission]) -> list[Submission]:
    """Select the submissions that can still be in a queue.

    A unit is submitted again at a site only after its job has left the queue there, so only the last submission of a
    unit counts. A submission without a recorded job id always counts, because its job may have been queued late.
    """
    last = {(submission.site, unit): submission.uuid for submission in submissions for unit in submission.units}
    latest = set(last.values())
    return [submission for submission in submissions if submission.job is None or submission.uuid in latest]
