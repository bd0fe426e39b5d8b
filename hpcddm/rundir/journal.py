"""Journal of everything that was submitted: the intent before the scheduler is called, the job id after."""

import json
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from hpcddm.rundir import atomic, fresh, sharing
from hpcddm.rundir.job import JobId

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
node on which the jobs of units ended before Python began.
"""
LOST_SECONDS = 86_400
"""Seconds after which a node that lost jobs may have been mended."""


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
        """Record, once, that the job of a unit ended on a node before Python began, by the node's fault."""
        losses = (event for event in self._events() if event["event"] == "lost" and event["uuid"] == token)
        if not any(unit in event["units"] for event in losses):
            self._append(event="lost", uuid=token, units=[unit], node=node)

    def lost_nodes(self, site: str, cluster: str | None) -> list[str]:
        """List the nodes of a site's cluster that lost jobs within `LOST_SECONDS`, each once, the latest loss last."""
        there = {
            submission.uuid
            for submission in self.submissions()
            if (submission.site, submission.cluster) == (site, cluster)
        }
        since = time.time() - LOST_SECONDS
        losses = (event for event in self._events() if event["event"] == "lost" and event["uuid"] in there)
        nodes = [str(event["node"]) for event in losses if event["time"] > since]
        return list(dict.fromkeys(reversed(nodes)))[::-1]

    def submissions(self) -> list[Submission]:
        """List all submissions that were not refused, oldest first.

        Torn lines and lines that are no event are skipped.
        """
        submissions: dict[str, Submission] = {}
        for event in self._events():
            before = submissions.get(event["uuid"])
            if event["event"] == "intent":
                values = {key: event[key] for key in KEYS["intent"]}
                values |= {key: str(event.get(key, "")) for key in ("name", "user")} | {"cluster": event.get("cluster")}
                submissions[event["uuid"]] = Submission(**values)
            elif before and event["event"] == "submitted":
                submissions[before.uuid] = replace(before, job=JobId(event["job"]))
            elif before and event["event"] == "cancelled":
                units = event.get("units", before.units)
                submissions[before.uuid] = replace(before, cancelled=(*before.cancelled, *units))
            elif before and event["event"] == "kept":
                cancelled = tuple(unit for unit in before.cancelled if unit not in event["units"])
                submissions[before.uuid] = replace(before, cancelled=cancelled)
            elif before and event["event"] == "refused":
                del submissions[before.uuid]
        return list(submissions.values())

    def is_cancelled(self, token: str, unit: str) -> bool:
        """Tell if the job of a unit in one submission was cancelled."""
        return any(submission.uuid == token and unit in submission.cancelled for submission in self.submissions())

    def _append(self, **event: object) -> None:
        atomic.append_line(self._path, json.dumps(event | {"time": time.time()}))

    def _events(self) -> list[dict]:
        # Another client may have written the first line since somebody looked for the file here.
        if not fresh.exists(self._path):
            return []
        events = []
        for line in self._path.read_text(errors="replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if _is_event(event):
                events.append(event)
        return events


def current(submissions: list[Submission]) -> list[Submission]:
    """Select the submissions that can still be in a queue.

    A unit is submitted anew at the same site only after its job has left the queue there, so of the submissions of a
    unit the last one counts; one without a recorded job id may have come late and always counts.
    """
    last = {(submission.site, unit): submission.uuid for submission in submissions for unit in submission.units}
    latest = set(last.values())
    return [submission for submission in submissions if submission.job is None or submission.uuid in latest]


def _is_event(value: object) -> bool:
    if not isinstance(value, dict) or value.get("event") not in tuple(KEYS):
        return False
    is_whole = all(key in value for key in KEYS[value["event"]]) and isinstance(value["uuid"], str)
    return is_whole and isinstance(value.get("units", []), list)
