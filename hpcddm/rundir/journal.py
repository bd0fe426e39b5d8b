"""Everything that was submitted: the intent before the scheduler is called, the job id after."""

import json
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from hpcddm.rundir import atomic

KEYS = {"intent": ("uuid", "scheduler", "site", "units", "time"), "submitted": ("uuid", "job")}
"""What each kind of line holds."""


@dataclass(frozen=True)
class Submission:
    """One job or array that was handed to a scheduler; element i of the array runs `units[i]`."""

    uuid: str
    scheduler: str
    site: str
    units: list[str]
    time: float
    job: str | None = None
    """The scheduler's id; None when the submit did not live to see it."""


class Journal:
    """The append-only `journal.jsonl` of a run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def intend(self, scheduler: str, site: str, units: list[str]) -> str:
        """Record what is about to be submitted and return its UUID, which goes into the job's name."""
        token = uuid.uuid4().hex[:12]
        self._append(event="intent", uuid=token, scheduler=scheduler, site=site, units=units, time=time.time())
        return token

    def submitted(self, token: str, job: str) -> None:
        """Record the job id that the scheduler gave."""
        self._append(event="submitted", uuid=token, job=job, time=time.time())

    def submissions(self) -> list[Submission]:
        """All submissions, oldest first; a torn line, and one that is no event, are passed over."""
        found: dict[str, Submission] = {}
        for event in self._events():
            if event["event"] == "intent":
                found[event["uuid"]] = Submission(**{key: event[key] for key in KEYS["intent"]})
            elif event["uuid"] in found:
                before = found[event["uuid"]]
                found[event["uuid"]] = Submission(**{**before.__dict__, "job": event["job"]})
        return list(found.values())

    def _append(self, **event: object) -> None:
        atomic.append_line(self._path, json.dumps(event))

    def _events(self) -> list[dict]:
        if not self._path.exists():
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


def _is_event(value: object) -> bool:
    if not isinstance(value, dict) or value.get("event") not in tuple(KEYS):
        return False
    return all(key in value for key in KEYS[value["event"]]) and isinstance(value["uuid"], str)
