"""Base classes of the launchers: the interface between the pipeline and a scheduler."""

import importlib
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from hpcddm.config.schema import validate
from hpcddm.config.site import Resources, Site
from hpcddm.errors import UserError
from hpcddm.launch.code_copy import CodeCopy
from hpcddm.launch.local.machine_gpus import GpuPool
from hpcddm.launch.script_template import user_parts
from hpcddm.pipeline.state import State
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Submission
from hpcddm.runs.run_dir import RunDir

QUERY_PREFIXES = ("SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_", "SCANCEL_")
"""Prefixes of variables with a user's filters and formats, which could hide jobs from squeue and scancel."""
SCHEDULER_PREFIXES = (*("SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "PMI", "SUBMITIT_", "HPCDDM_LAUNCH"), *QUERY_PREFIXES)

DEFAULT_MAX_ARRAY = 1001
"""Slurm's default of MaxArraySize."""

PYTHON = (sys.executable, "-P")
"""Command of a Python process that imports nothing from its working directory."""


class SubmissionRefused(UserError):
    """Error for an array that the scheduler refused; the message contains its reason."""


class QueueFull(SubmissionRefused):
    """Error for a queue that currently accepts no more jobs of this user."""


@dataclass(frozen=True)
class ArraySpec:
    """Units with equal resources that are submitted as one array; element i runs the unit whose spec is `specs[i]`."""

    name: str
    """Name of the array, which becomes part of the jobs' names."""
    keys: list[str]
    """Names of the units in the journal."""
    specs: list[Path]
    """Path of each unit's spec."""
    resources: Resources
    after: list[JobId]
    """Jobs of the same cluster that must end first, with or without success; the units check their inputs."""
    throttle: int
    """Maximum number of elements that run at the same time."""
    begin_seconds: int = 0
    """Seconds before the first check of inputs from another cluster, because dependencies cannot cross clusters."""
    waits_for: tuple[str, ...] = ()
    """Names of the jobs in `after` for the user: scripts of this submission, and jobs already in the queue."""


@dataclass(frozen=True)
class Limits:
    """Limits of a cluster for a user."""

    max_array: int = DEFAULT_MAX_ARRAY
    """Maximum number of elements per array."""
    free_jobs: int | None = None
    """Number of further jobs that the cluster accepts; None for unlimited."""
    reason: str = ""
    """Source of `free_jobs`, as text for the user."""


@dataclass(frozen=True)
class Job:
    """One array element in the queue or on nodes; its state is a `State`, not the scheduler's own term."""

    id: JobId
    state: State
    reason: str = ""
    """Reason for the state; for a pending job also its expected start, if the scheduler knows it."""
    nodes: str = ""
    others: tuple[JobId, ...] = ()
    """Further jobs of the same unit; a job that resubmits itself is briefly in the queue twice."""


class Launcher(ABC):
    """Interface to the scheduler of a site.

    Args:
        site: The site.
        run: The run, or the folder of a sweep.
    """

    def __init__(self, site: Site, run: RunDir) -> None:
        self.site = site
        self.run = run
        self.code = CodeCopy(run)
        """Code that the jobs run."""
        self.template_parts = user_parts()
        """Texts of the user's parts of the batch script's template."""

    @abstractmethod
    def check(self, arrays: list[ArraySpec]) -> None:
        """Check, before anything is written, that arrays can be submitted from this machine.

        Raises:
            UserError: If the scheduler does not answer, or would refuse or never start one of the arrays.
        """

    @abstractmethod
    def submit(self, array: ArraySpec, token: str, script: str) -> JobId:
        """Submit an array.

        Args:
            array: The array.
            token: Token of the submission, as `Journal.record_intent` returns it; part of the jobs' names.
            script: Name of the batch script in the run; unused by a launcher without batch scripts.

        Returns:
            The id that the scheduler assigned.

        Raises:
            QueueFull: If the scheduler would accept the array later.
            SubmissionRefused: If the scheduler refuses the array.
            UserError: If the scheduler does not answer.
        """

    @abstractmethod
    def states(self, submissions: list[Submission]) -> dict[str, Job] | None:
        """Return the waiting and running elements of submissions.

        Returns:
            The jobs by unit, or None if the scheduler does not answer.
        """

    @abstractmethod
    def signal_stop(self, *jobs: JobId) -> None:
        """Signal running jobs to save and exit.

        Raises:
            UserError: If the scheduler refuses.
        """

    @abstractmethod
    def cancel(self, *jobs: JobId) -> None:
        """Cancel jobs.

        Raises:
            UserError: If the scheduler refuses.
        """


class QueueLauncher(Launcher):
    """Launcher for a scheduler with a queue, in which arrays wait for each other and for resources."""

    @abstractmethod
    def limits(self, num_jobs: int, cluster: str | None = None) -> Limits:
        """Return the limits for this user.

        Args:
            num_jobs: Number of jobs to submit.
            cluster: Cluster of the site; None if the site names none.
        """

    @abstractmethod
    def check_shared_folder(self, arrays: list[ArraySpec]) -> None:
        """Check, before submission, that the clusters of these arrays share the run's folder.

        Raises:
            UserError: If one of the clusters does not see the folder.
        """

    @abstractmethod
    def render(self, array: ArraySpec, script: str) -> Path:
        """Write the batch script that `submit` would submit into the run.

        Args:
            array: The array.
            script: Name of the batch script.

        Returns:
            The path of the batch script.

        Raises:
            UserError: If the template has an error.
        """


class DirectLauncher(Launcher):
    """Launcher without a queue: a submitted unit starts immediately, so the caller limits how many run."""

    cores: int
    """Number of cores that units may fill."""
    gpus: GpuPool

    @abstractmethod
    def is_running(self, job: str) -> bool:
        """Return True if processes of a job that this launcher started still run."""

    @abstractmethod
    def kill(self, job: str) -> None:
        """Kill all processes of a job."""


def clean_environment() -> dict[str, str]:
    """Return the environment for a new job, without the variables of an enclosing allocation except SLURM_CONF."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(SCHEDULER_PREFIXES)}
    if "SLURM_CONF" in os.environ:
        kept["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return kept


def python_path(code: Path, before: str | None) -> str:
    """Return a PYTHONPATH that begins with `code`.

    Args:
        code: Folder of the code.
        before: Current PYTHONPATH; its empty entries, which mean the working directory, are dropped.
    """
    return os.pathsep.join([str(code), *filter(None, (before or "").split(os.pathsep))])


def site_from_journal(submission: Submission) -> Site:
    """Return the site of a submission with the keys that the journal stores, which suffice to query its queue."""
    return validate(Site, {"name": submission.site, "scheduler": submission.scheduler}, "journal")


def create_launcher(site: Site, run: RunDir) -> QueueLauncher | DirectLauncher:
    """Create the launcher of a site, from `launch/<scheduler>/launcher.py`.

    Args:
        site: The site.
        run: The run, or the folder of a sweep.
    """
    return importlib.import_module(f"hpcddm.launch.{site.scheduler}.launcher").create(site, run)
