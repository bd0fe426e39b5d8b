"""The contract between the pipeline and a scheduler: submit, states, cancel."""

import importlib
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from hpcddm.config.schema import validate
from hpcddm.config.site import Resources, Site
from hpcddm.errors import UserError
from hpcddm.launch.code_copy import Checkout, Snapshot
from hpcddm.launch.local.machine_gpus import GpuPool
from hpcddm.launch.script_template import own_parts
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Submission
from hpcddm.runs.layout import RunDir

QUERY_PREFIXES = ("SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_", "SCANCEL_")
"""A user's own filters and formats: with them the queue would hide jobs from us, and scancel would pass them over."""
SCHEDULER_PREFIXES = (
    *("SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "PMI", "SUBMITIT_", "HPCDDM_LAUNCH"),
    *QUERY_PREFIXES,
)

DEFAULT_MAX_ARRAY = 1001
"""Slurm's own default of MaxArraySize."""

PYTHON = (sys.executable, "-P")
"""Starts a process that imports nothing from the folder in which it stands."""


class Refused(UserError):
    """The scheduler refused this array whole; the message holds its reason."""


class QueueFull(Refused):
    """The scheduler takes no more jobs of this user now."""


@dataclass(frozen=True)
class ArraySpec:
    """Jobs of one shape that are submitted together: element i runs the unit whose spec is `specs[i]`."""

    name: str
    keys: list[str]
    specs: list[Path]
    resources: Resources
    after: list[JobId]
    """Jobs of the same cluster that must have ended, well or badly; the units check their inputs themselves."""
    throttle: int
    """Number of elements that may run at the same time."""
    begin_seconds: int = 0
    """Seconds to wait before the first check of inputs from another cluster: no dependency crosses clusters."""
    waits_for: tuple[str, ...] = ()
    """The jobs of `after`, for people: scripts of the same submission, and jobs that were in the queue before."""


@dataclass(frozen=True)
class Limits:
    """Limits of a cluster: elements of one array, and further jobs of this user; None stands for no limit."""

    max_array: int = DEFAULT_MAX_ARRAY
    room: int | None = None
    reason: str = ""
    """Source of `room`, in words for the user."""


@dataclass(frozen=True)
class Job:
    """State of one element in the queue: 'pending', 'running' or the scheduler's word, with its reason or nodes."""

    id: JobId
    state: str
    detail: str = ""
    starts: str = ""
    """Expected start of a pending job, as the scheduler writes it; empty when it does not know."""
    others: tuple[JobId, ...] = ()
    """Further jobs of the same unit: a job that resubmits itself is in the queue twice for a moment."""


class Launcher(ABC):
    """One scheduler at one site."""

    def __init__(self, site: Site, run: RunDir) -> None:
        self.site = site
        self.run = run
        self.code: Snapshot | Checkout = Snapshot(run)
        """Code that is run by the jobs that it starts."""
        self.template_parts = own_parts()
        """Texts of the user's own parts of the batch script's template."""

    @abstractmethod
    def check(self, arrays: list[ArraySpec]) -> None:
        """Raise `UserError` when these arrays cannot be submitted from here; called before anything is written."""

    @abstractmethod
    def submit(self, array: ArraySpec, token: str, script: str) -> JobId:
        """Submit an array whose job name carries `token` and return the scheduler's id.

        `script` is the name under which the batch script, where there is one, is kept in the run.
        Raises `UserError` with the scheduler's words when it refuses, `QueueFull` when it will take the same later.
        """

    @abstractmethod
    def states(self, submissions: list[Submission]) -> dict[str, Job] | None:
        """Return the waiting or running elements of these submissions, by unit; None when the scheduler is silent."""

    @abstractmethod
    def dismiss(self, *jobs: JobId) -> None:
        """Signal running jobs to save and exit; raises `UserError` with the scheduler's words when it refuses."""

    @abstractmethod
    def cancel(self, *jobs: JobId) -> None:
        """End jobs; raises `UserError` with the scheduler's words when it refuses."""


class QueueLauncher(Launcher):
    """One scheduler with a queue, in which arrays wait for each other and for room."""

    @abstractmethod
    def limits(self, num_jobs: int, cluster: str | None = None) -> Limits:
        """Return the scheduler's limits when `num_jobs` jobs are to be submitted to one of the site's clusters."""

    @abstractmethod
    def prove_folder(self, arrays: list[ArraySpec]) -> None:
        """Raise `UserError` when a cluster of one of these arrays does not see the run; called before submission."""

    @abstractmethod
    def render(self, array: ArraySpec, script: str) -> Path:
        """Write the batch script that `submit` would submit into the run, under the name `script`; return its path.

        Raises `UserError` naming the template when it has a mistake.
        """


class DirectLauncher(Launcher):
    """Launcher without a queue: a submitted unit starts at once, so the caller decides how many run."""

    cores: int
    """Number of cores to fill with units."""
    gpus: GpuPool

    @abstractmethod
    def is_running(self, job: str) -> bool:
        """Tell if the processes of a job that this launcher started still run."""

    @abstractmethod
    def kill(self, job: str) -> None:
        """End all processes of a job at once."""


def clean_environment() -> dict[str, str]:
    """Return the environment for a new job: without the variables of an enclosing allocation, but with SLURM_CONF."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(SCHEDULER_PREFIXES)}
    if "SLURM_CONF" in os.environ:
        kept["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return kept


def python_path(code: Path, before: str | None) -> str:
    """Return PYTHONPATH with this code first; empty entries, which stand for the working directory, are dropped."""
    return os.pathsep.join([str(code), *filter(None, (before or "").split(os.pathsep))])


def bare_site(submission: Submission) -> Site:
    """Return the site of a submission as far as the journal knows it, which is enough to query its queue."""
    return validate(Site, {"name": submission.site, "scheduler": submission.scheduler}, "journal")


def launcher_of(site: Site, run: RunDir) -> QueueLauncher | DirectLauncher:
    """Create the launcher of a site, from `launch/<scheduler>/launcher.py`."""
    return importlib.import_module(f"hpcddm.launch.{site.scheduler}.launcher").create(site, run)
