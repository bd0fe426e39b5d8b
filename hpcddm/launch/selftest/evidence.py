"""Evidence of the trial jobs: the files that they wrote, and the rows of checks whose files are missing."""

import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hpcddm.config.site import Resources, Site
from hpcddm.files import checked_reads
from hpcddm.launch.selftest.check_results import CheckResult, fail, not_run

MINUTES = 5
"""Time limit of the trial jobs in minutes; they take seconds, and short jobs start earlier."""
CHECKED_STAGE = "train"
"""Stage whose resources are tried, because it uses the most nodes and its units must survive requeues."""


class TrialJob(StrEnum):
    """Trial job: an array of three elements on one node each, or one job on all nodes of a training."""

    ARRAY = "array"
    NODES = "nodes"


class Element:
    """Indices of the array's elements, by the property that each element tests."""

    ENVIRONMENT, SIGNALS, REQUEUE = range(3)
    COUNT = 3


FOLDER = re.compile(r"(?P<part>array|nodes)-(?P<job>[0-9]+)_(?P<element>[0-9]+)\.(?P<restart>[0-9]+)")


def checked_stage(site: Site, cluster: str | None) -> str:
    """Return the stage whose resources are tried on a cluster.

    Args:
        site: The site.
        cluster: Cluster of the site; None if the site names none.

    Returns:
        `CHECKED_STAGE` if the site runs it on the cluster, otherwise the first stage that it runs there; '' for none.
    """
    for name in (CHECKED_STAGE, *site.stages):
        if site.resources_for(*name.partition("/")[::2]).cluster == cluster:
            return name
    return ""


@dataclass(frozen=True)
class JobStart:
    """One start of an element of a trial job, with the folder that the batch script created for it."""

    part: str
    job: int
    element: int
    restart: int
    folder: Path

    def text(self, name: str) -> str | None:
        """Read a text file that the job wrote, without surrounding white space; None if the file is missing."""
        with suppress(OSError):
            return (self.folder / name).read_text(errors="replace").strip()
        return None

    def json(self, name: str) -> Any | None:
        """Read a JSON file that the job wrote; None if the file is missing."""
        return checked_reads.read_json(self.folder / f"{name}.json")

    @property
    def time(self) -> float:
        """Start of the batch script, in seconds since the epoch; 0 if unknown."""
        return float(self.text("started") or 0)

    @property
    def is_done(self) -> bool:
        """True if the batch script reached its end."""
        return (self.folder / "done").exists()


@dataclass(frozen=True)
class Evidence:
    """Evidence for the verdicts: the site, and the folder with the files of the trial jobs."""

    site: Site
    folder: Path
    submitted: dict[str, str] = field(default_factory=dict)
    """Job id of each accepted trial job, by `TrialJob`."""
    waiting: dict[str, str] = field(default_factory=dict)
    """State of each trial job still in the queue at the end, such as 'pending because (Resources)'."""
    cluster: str | None = None
    """Cluster of the site; None if the site names none."""

    @property
    def resources(self) -> Resources:
        """Resources of a unit of the checked stage."""
        return self.site.resources_for(*checked_stage(self.site, self.cluster).partition("/")[::2])

    @property
    def element_resources(self) -> Resources:
        """Resources of an element of the array, equal to one rank's share of such a unit."""
        whole = self.resources
        share = {
            "gpus_per_node": min(1, whole.gpus_per_node),
            "memory_gb": max(1, whole.memory_gb // whole.ranks_per_node),
        }
        return whole.model_copy(update={"nodes": 1, "ranks_per_node": 1, **share})

    @property
    def minutes(self) -> int:
        """Time limit of the trial jobs in minutes, long enough that Slurm does not signal them immediately."""
        return min(MINUTES + math.ceil(self.site.signal_lead_seconds / 60), self.resources.minutes)

    def starts(self, part: str, element: int | None = None) -> list[JobStart]:
        """List the starts of a trial job, oldest first.

        Args:
            part: The trial job, a `TrialJob`.
            element: Index of an element; None for all elements.
        """
        starts = []
        for folder in self.folder.iterdir():
            match = FOLDER.fullmatch(folder.name)
            if match and match["part"] == part and element in (None, int(match["element"])):
                job, number, restart = (int(match[name]) for name in ("job", "element", "restart"))
                starts.append(JobStart(part, job, number, restart, folder))
        return sorted(starts, key=lambda start: (start.job, start.restart, start.element))

    def last(self, part: str, element: int = 0) -> JobStart | None:
        """Return the last start of an element; None if it never started."""
        return next(reversed(self.starts(part, element)), None)

    def missing_result(self, part: str, element: int, step: str) -> CheckResult:
        """Return the row of a check whose result is missing, with the reason.

        Args:
            part: The trial job, a `TrialJob`.
            element: Index of the element.
            step: Name of the step that should have written the result.
        """
        if part not in self.submitted:
            return not_run("not submitted", "see submit")
        if (start := self.last(part, element)) is None:
            return self._never_started(part, element)
        if start.text("setup.done") is None and part not in self.waiting:
            return not_run("the setup lines ended the job", "see environment")
        if step != "meet" and start.text("meet.exit") not in (None, "0"):
            return not_run("the ranks did not meet", "see ranks, rendezvous")
        if start.text(f"{step}.exit") is None and part in self.waiting:
            advice = f"look at {self.folder}, then try with a longer --timeout"
            return fail(None, f"no answer in time: {self.waiting[part]}", advice)
        code, message = start.text(f"{step}.exit") or "nothing", last_line(start.text(f"{step}.out"))
        finding = f"ended with {code} and without an answer" + (f": {message}" if message else "")
        return fail(None, finding, f"look at {start.folder}/{step}.out")

    def _never_started(self, part: str, element: int) -> CheckResult:
        if part in self.waiting:
            return not_run(self.waiting[part], "try again with a longer --timeout")
        of_cluster = f" of cluster {self.cluster}" if self.cluster else ""
        advice = f"do the compute nodes{of_cluster} see {self.folder}? choose another --folder, on a shared file system"
        message = last_line(self.output(part, element))
        return fail(None, message or "left the queue without a trace in the folder", advice)

    def output(self, part: str, element: int) -> str | None:
        """Read the output of an element's batch script; None without output."""
        with suppress(OSError, KeyError):
            return (self.folder / f"{self.submitted[part]}_{element}.out").read_text(errors="replace")
        return None


def last_line(text: str | None) -> str:
    """Return the last line of a text, preferring lines other than Slurm's remarks about the end of a step."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    relevant = [line for line in lines if not line.startswith("srun:") and " CANCELLED " not in line]
    return (relevant or lines or [""])[-1]
