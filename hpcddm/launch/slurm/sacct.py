"""Executions of a run's jobs in Slurm's accounting, including executions before a requeue."""

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from hpcddm.launch.slurm.client import cluster_flag, query_slurm
from hpcddm.runs.job import JobId

FIELDS = ("JobID", "JobName", "Start", "End", "ElapsedRaw", "State", "AllocTRES")
SACCT_SECONDS = 60
CLOCK_SECONDS = 3600
"""Seconds before the first submission from which sacct searches, because of clock differences and daylight saving."""


@dataclass(frozen=True)
class Execution:
    """One execution of an array element; a requeued element has several executions with the same id."""

    job: JobId
    """Id of the element; a job without an array counts as its element 0."""
    token: str
    """Token of its submission, from the job's name."""
    started: float
    ended: float | None
    """End of the execution, in seconds since the epoch; None while it runs."""
    seconds: int
    state: str
    cpus: int
    gpus: int | None
    """Number of GPUs; None if the cluster's accounting does not count GPUs."""


def executions(names: Mapping[str | None, list[str]], since: float) -> list[Execution]:
    """List all executions of some jobs, oldest first, with one call of sacct per cluster.

    Args:
        names: Names of the jobs, by cluster.
        since: Time of the first submission, in seconds since the epoch.

    Raises:
        SlurmUnavailable: If sacct is missing, fails or does not answer.
    """
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - CLOCK_SECONDS))
    # Without --duplicates sacct shows only the last execution of a requeued job.
    flags = ("--duplicates", "--allocations", "--allusers", "--noheader", "--parsable2")
    started_executions: list[Execution] = []
    for cluster, some in names.items():
        command = ("sacct", *cluster_flag(cluster), *flags, f"--starttime={start}", f"--name={','.join(some)}")
        text = query_slurm(*command, f"--format={','.join(FIELDS)}", seconds=SACCT_SECONDS)
        rows = (line.split("|") for line in text.splitlines() if line.count("|") == len(FIELDS) - 1)
        started_executions += [execution for execution in (_execution(row, cluster) for row in rows) if execution]
    return sorted(started_executions, key=lambda execution: execution.started)


def _execution(values: list[str], cluster: str | None) -> Execution | None:
    """Parse one row of sacct; None for a job that never started."""
    row = dict(zip(FIELDS, values, strict=True))
    if (started := _epoch(row["Start"])) is None or not row["ElapsedRaw"].isdecimal():
        return None
    resources = dict(part.split("=", 1) for part in row["AllocTRES"].split(",") if "=" in part)
    return Execution(
        job=JobId.on_cluster(row["JobID"] if "_" in row["JobID"] else f"{row['JobID']}_0", cluster),
        token=row["JobName"].rsplit("-", 1)[-1],
        started=started,
        ended=_epoch(row["End"]),
        seconds=int(row["ElapsedRaw"]),
        state=row["State"].split()[0] if row["State"] else "",
        cpus=_count(resources.get("cpu", "0")),
        gpus=_gpus(resources),
    )


def _epoch(text: str) -> float | None:
    """Convert Slurm's local time to seconds since the epoch; None for 'Unknown' and 'None'."""
    with suppress(ValueError):
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    return None


def _gpus(resources: dict[str, str]) -> int | None:
    if "gres/gpu" in resources:
        return _count(resources["gres/gpu"])
    typed = [_count(value) for key, value in resources.items() if key.startswith("gres/gpu:")]
    return sum(typed) if typed else None


def _count(text: str) -> int:
    match = re.match(r"[0-9]+", text)
    return int(match[0]) if match else 0
