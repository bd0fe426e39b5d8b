"""Evidence of the small jobs: the files that they left, and the rows of checks for which there are none."""

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hpcddm.config.site import Resources, Site
from hpcddm.files import reading
from hpcddm.launch.selftest.results import CheckRow, CheckVerdict

MINUTES = 5
"""Time limit of the jobs in minutes; they take seconds, and short jobs are started earlier."""
CHECKED_STAGE = "train"
"""Stage whose shape is tried: it has the most nodes, and its units are those that must come back."""


class Part(StrEnum):
    """Submission of the trial: three elements on one node each, or one job over all nodes of a training."""

    ARRAY = "array"
    NODES = "nodes"


class Element:
    """Numbers of the array's elements, by what each of them tries."""

    ENVIRONMENT, SIGNALS, REQUEUE = range(3)
    COUNT = 3


FOLDER = re.compile(r"(?P<part>array|nodes)-(?P<job>[0-9]+)_(?P<element>[0-9]+)\.(?P<restart>[0-9]+)")


def checked(site: Site, cluster: str | None) -> str:
    """Return the stage whose shape is tried on a cluster: the checked one, or the first that the site sends there."""
    for name in (CHECKED_STAGE, *site.stages):
        if site.resources_for(*name.partition("/")[::2]).cluster == cluster:
            return name
    return ""


@dataclass(frozen=True)
class JobStart:
    """Start of one element of a part, with the folder that the batch script made for it."""

    part: str
    job: int
    element: int
    restart: int
    folder: Path

    def text(self, name: str) -> str | None:
        """Read a file that the job left, stripped; None where it left none."""
        try:
            return (self.folder / name).read_text(errors="replace").strip()
        except OSError:
            return None

    def json(self, name: str) -> Any | None:
        """Read a JSON file that the job left; None where it left none."""
        return reading.read_json(self.folder / f"{name}.json")

    @property
    def time(self) -> float:
        """Start of the batch script, in seconds since the epoch; 0 where it left none."""
        return float(self.text("started") or 0)

    @property
    def is_done(self) -> bool:
        """True if the batch script came to its end."""
        return (self.folder / "done").exists()


@dataclass(frozen=True)
class Evidence:
    """Evidence for the verdicts: the site and the folder in which the jobs left their files."""

    site: Site
    folder: Path
    submitted: dict[str, str] = field(default_factory=dict)
    """Job id of each part that was accepted."""
    waiting: dict[str, str] = field(default_factory=dict)
    """State of each part that was still in the queue in the end: 'pending because (Resources)', 'running on h1'."""
    cluster: str | None = None
    """The cluster of the site that is tried; None where it names none."""

    @property
    def resources(self) -> Resources:
        """Resources of a unit of the checked stage."""
        return self.site.resources_for(*checked(self.site, self.cluster).partition("/")[::2])

    @property
    def element_resources(self) -> Resources:
        """Resources of an element of the array: those of one rank of such a unit."""
        whole = self.resources
        return whole.model_copy(
            update={
                "nodes": 1,
                "ranks_per_node": 1,
                "gpus_per_node": min(1, whole.gpus_per_node),
                "memory_gb": max(1, whole.memory_gb // whole.ranks_per_node),
            }
        )

    @property
    def minutes(self) -> int:
        """Time limit of the jobs in minutes, long enough that Slurm's signal before its end does not come at once."""
        lead = math.ceil(self.site.signal_lead_seconds / 60)
        return min(MINUTES + lead, self.resources.minutes)

    def starts(self, part: str, element: int | None = None) -> list[JobStart]:
        """List all starts of a part, or of one of its elements, oldest first."""
        starts = []
        for folder in self.folder.iterdir():
            match = FOLDER.fullmatch(folder.name)
            if match and match["part"] == part and element in (None, int(match["element"])):
                job, number, restart = (int(match[name]) for name in ("job", "element", "restart"))
                starts.append(JobStart(part, job, number, restart, folder))
        return sorted(starts, key=lambda start: (start.job, start.restart, start.element))

    def last(self, part: str, element: int = 0) -> JobStart | None:
        """Return the last start of an element; None where there is none."""
        return next(reversed(self.starts(part, element)), None)

    def absent(self, check: str, part: str, element: int, step: str) -> CheckRow:
        """Return the row of a check whose result is missing, with the reason why."""
        if part not in self.submitted and self.site.scheduler == "slurm":
            return CheckRow(check, CheckVerdict.NOT_RUN, None, "not submitted", "see submit")
        start = self.last(part, element)
        if start is None:
            return self._never_started(check, part, element)
        if start.text("setup.done") is None and part not in self.waiting:
            return CheckRow(check, CheckVerdict.NOT_RUN, None, "the setup lines ended the job", "see environment")
        if start.text(f"{step}.exit") is None and part in self.waiting:
            advice = f"look at {self.folder}, then try with a longer --timeout"
            return CheckRow(check, CheckVerdict.FAIL, None, f"no answer in time: {self.waiting[part]}", advice)
        code, message = start.text(f"{step}.exit") or "nothing", last_line(start.text(f"{step}.out"))
        finding = f"ended with {code} and without an answer" + (f": {message}" if message else "")
        return CheckRow(check, CheckVerdict.FAIL, None, finding, f"look at {start.folder}/{step}.out")

    def _never_started(self, check: str, part: str, element: int) -> CheckRow:
        if part in self.waiting:
            return CheckRow(check, CheckVerdict.NOT_RUN, None, self.waiting[part], "try again with a longer --timeout")
        of_cluster = f" of cluster {self.cluster}" if self.cluster else ""
        advice = f"do the compute nodes{of_cluster} see {self.folder}? choose another --folder, on a shared file system"
        message = last_line(self.output(part, element))
        return CheckRow(
            check, CheckVerdict.FAIL, None, message or "left the queue without a trace in the folder", advice
        )

    def output(self, part: str, element: int) -> str | None:
        """Read what the batch script of an element printed; None where there is nothing."""
        try:
            return (self.folder / f"{self.submitted[part]}_{element}.out").read_text(errors="replace")
        except (OSError, KeyError):
            return None


def last_line(text: str | None) -> str:
    """Return the last line of a text; one of Slurm's remarks about the end of a step only where there is no other."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    relevant = [line for line in lines if not line.startswith("srun:") and " CANCELLED " not in line]
    return (relevant or lines or [""])[-1]
