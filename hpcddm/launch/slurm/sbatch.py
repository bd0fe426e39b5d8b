"""Submission by sbatch that makes exactly one job even where sbatch's answer is lost."""

import random
import re
import subprocess
import time
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.launch.base import QueueFull, Refused
from hpcddm.launch.slurm.client import SlurmUnavailable, call, error_text, on, query

PAUSES = (2.0, 8.0, 20.0)
"""Seconds before sbatch is called again; a random share is added, so that a crowd does not come back at once."""
LOOKUP_SECONDS = 6.0
"""Seconds that a job may take to show in the queue whose request was on its way when sbatch ended."""
TRANSIENT = re.compile(
    "timed out|unable to contact|temporarily unable|temporarily unavailable|connection refused|communication"
    "|zero bytes were transmitted|connection reset",
    re.IGNORECASE,
)
FULL = re.compile(r"(Assoc|QOS)\w*Submit\w*Limit", re.IGNORECASE)
"""Slurm's reasons for too many jobs of one user, or of a group, at this moment."""


class Sbatch:
    """Submission of one script under a job name that no other job has."""

    def __init__(self, script: Path, name: str, start: list[str], has_sacct: bool, cluster: str | None = None) -> None:
        """Prepare a call of sbatch; start: flags for the earliest start of the job."""
        self._script, self._name, self._has_sacct, self._on = script, name, has_sacct, on(cluster)
        self._command = ["sbatch", *self._on, "--parsable", f"--job-name={name}", *start, str(script)]

    def submit(self) -> str:
        """Submit once and return the job's id on its cluster.

        A call that died or gave no clear answer may have submitted a job: it is searched by its name before the next
        call. Raises `QueueFull` when this user has too many jobs, `UserError` when Slurm refuses or stays silent.
        """
        for pause in (*PAUSES, None):
            job, reason = self._call()
            if job:
                return self._only(job) if pause != PAUSES[0] else job
            late = self._find()
            if late:
                return late
            if late is None or pause is None:
                break
            time.sleep(pause * (1 + random.random()))
        raise UserError(
            f"sbatch had no success with {self._script}: {reason}; submit again when Slurm answers:"
            " what it accepted after all is found by its name and not submitted twice"
        )

    def _call(self) -> tuple[str, str]:
        """Call sbatch; return the job's id, or '' and the reason why it is unknown whether there is a job."""
        try:
            process = call(*self._command)
        except OSError as error:
            raise UserError(f"sbatch cannot be run: {error.strerror}; submit from a login node") from None
        except subprocess.TimeoutExpired as error:
            return "", f"no answer in {error.timeout:.0f} s"
        message = error_text(process)
        if process.returncode == 0:
            job = process.stdout.strip().split(";")[0]
            return (job, "") if job.isdecimal() else ("", f"it said '{message}' and not a job id")
        if process.returncode < 0 or process.returncode > 128:
            return "", f"it was killed (exit code {process.returncode})"
        if TRANSIENT.search(message):
            return "", message
        full = FULL.search(message)
        raise QueueFull(f"Slurm says {full[0]}") if full else Refused(f"sbatch refused {self._script}: {message}")

    def _find(self) -> str | None:
        """Find the id of the job of this name; '' when there is none, None when Slurm does not answer."""
        deadline = time.monotonic() + LOOKUP_SECONDS
        while True:
            ids = self._jobs()
            if ids:
                return self._only(min(ids, key=int))
            if time.monotonic() > deadline:
                return None if ids is None else ""
            time.sleep(1)

    def _jobs(self) -> set[str] | None:
        """Find the ids of all jobs of this name, ended ones included; None when Slurm does not answer."""
        name = f"--name={self._name}"
        commands = [("squeue", *self._on, "--all", "--noheader", "--states=all", name, "--format=%F")]
        if self._has_sacct:
            commands.append(("sacct", *self._on, "-X", "--noheader", "--parsable2", name, "--format=JobID"))
        ids: set[str] = set()
        silent = False
        for command in commands:
            try:
                ids |= set(re.findall(r"^\d+", query(*command), re.MULTILINE))
            except SlurmUnavailable:
                # sacct may be missing or late; the queue itself must have answered for 'there is none'.
                silent |= command[0] == "squeue"
        return ids or (None if silent else set())

    def _only(self, job: str) -> str:
        """Cancel jobs of this name that earlier calls of sbatch made after all, and return the one that stays."""
        for other in sorted((self._jobs() or set()) - {job}):
            call("scancel", *self._on, other)
        return job
