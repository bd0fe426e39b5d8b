"""Submission through sbatch that creates exactly one job even if sbatch's answer is lost."""

import random
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from hpcddm.errors import SchedulerUnreachable, UserError
from hpcddm.launch.base import QueueFull, SubmissionRefused
from hpcddm.launch.slurm.client import SlurmUnavailable, call_slurm, cluster_flag, error_text, query_slurm

PAUSES = (2.0, 8.0, 20.0)
"""Seconds before each further call of sbatch; a random share is added, so that many clients do not retry together."""
LOOKUP_SECONDS = 6.0
"""Seconds until a job must appear in the queue if sbatch died during its request."""
TRANSIENT = re.compile(
    "timed out|unable to contact|temporarily unable|temporarily unavailable|connection refused|communication"
    "|zero bytes were transmitted|connection reset",
    re.IGNORECASE,
)
FULL = re.compile(r"(Assoc|QOS)\w*Submit\w*Limit", re.IGNORECASE)
"""Pattern of Slurm's messages about a limit on the current number of jobs of a user or a group."""


class Sbatch:
    """Submission of one batch script under a unique job name.

    Args:
        script: The batch script.
        name: Unique name of the job.
        start: Flags of sbatch for dependency or earliest start.
        has_sacct: True if lost jobs can also be found through sacct.
        cluster: Name of the cluster; None for the default cluster.
        variables: Further variables of the job's environment, which no file of the run may hold.
    """

    def __init__(
        self,
        script: Path,
        name: str,
        start: list[str],
        has_sacct: bool,
        cluster: str | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._script, self._name, self._has_sacct, self._on = script, name, has_sacct, cluster_flag(cluster)
        self._variables = variables
        self._command = ["sbatch", *self._on, "--parsable", f"--job-name={name}", *start, str(script)]

    def submit(self) -> str:
        """Submit the script once and return the job's id on its cluster.

        A call without a clear answer may have created a job, so the method searches for the job by name before it calls
        sbatch again.

        Raises:
            QueueFull: If this user has too many jobs.
            SubmissionRefused: If Slurm refuses the script.
            SchedulerUnreachable: If Slurm does not answer.
            UserError: If this machine lacks sbatch.
        """
        for pause in (*PAUSES, None):
            job, reason = self._call()
            if job:
                return self._only(job) if pause != PAUSES[0] else job
            if late := self._find():
                return late
            if late is None or pause is None:
                break
            time.sleep(pause * (1 + random.random()))
        raise SchedulerUnreachable(
            f"sbatch had no success with {self._script}: {reason}; submit again when Slurm answers:"
            " what it accepted after all is found by its name and not submitted twice"
        )

    def _call(self) -> tuple[str, str]:
        """Call sbatch and return the job's id, or '' and the reason why it is unclear whether there is a job."""
        try:
            process = call_slurm(*self._command, variables=self._variables)
        except OSError as error:
            raise UserError(f"sbatch cannot be run: {error.strerror}; submit from a login node") from None
        except subprocess.TimeoutExpired as error:
            return "", f"no answer in {error.timeout:.0f} s"
        message = error_text(process)
        if process.returncode == 0:
            job = process.stdout.strip().split(";")[0]
            return (job, "") if job.isdecimal() else ("", f"it printed '{message}' instead of a job id")
        if process.returncode < 0 or process.returncode > 128:
            return "", f"it was killed (exit code {process.returncode})"
        if TRANSIENT.search(message):
            return "", message
        if full := FULL.search(message):
            raise QueueFull(f"Slurm says {full[0]}")
        raise SubmissionRefused(f"sbatch refused {self._script}: {message}")

    def _find(self) -> str | None:
        """Find the id of the job with this name; '' if there is none, None if Slurm does not answer."""
        deadline = time.monotonic() + LOOKUP_SECONDS
        while True:
            if ids := self._jobs():
                return self._only(min(ids, key=int))
            if time.monotonic() > deadline:
                return None if ids is None else ""
            time.sleep(1)

    def _jobs(self) -> set[str] | None:
        """Find the ids of all jobs with this name, including ended jobs; None if Slurm does not answer."""
        name = f"--name={self._name}"
        commands = [("squeue", *self._on, "--all", "--noheader", "--states=all", name, "--format=%F")]
        if self._has_sacct:
            commands.append(("sacct", *self._on, "-X", "--noheader", "--parsable2", name, "--format=JobID"))
        ids: set[str] = set()
        silent = False
        for command in commands:
            try:
                ids |= set(re.findall(r"^\d+", query_slurm(*command), re.MULTILINE))
            except SlurmUnavailable:
                # sacct may be missing or late, but only an answer of squeue proves that no job exists.
                silent |= command[0] == "squeue"
        return ids or (None if silent else set())

    def _only(self, job: str) -> str:
        """Cancel other jobs with this name that earlier calls of sbatch created, and return the id `job`."""
        for other in sorted((self._jobs() or set()) - {job}):
            call_slurm("scancel", *self._on, other)
        return job
