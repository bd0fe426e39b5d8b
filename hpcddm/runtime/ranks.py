"""Rank, world size and owner of this process inside its unit, from the scheduler's environment."""

import os
import time
from dataclasses import dataclass

from hpcddm.rundir.job import JobId

LAUNCH_VARIABLE = "HPCDDM_LAUNCH"
"""Set by the embedded launcher: an identifier that no other launch on any machine has."""
CLUSTER_VARIABLE = "HPCDDM_CLUSTER"
"""Set by the batch script: the name of its cluster, where the site names clusters."""


@dataclass(frozen=True)
class Ranks:
    """Place of one process in its unit; `owner` is the name of the execution that all its ranks share."""

    rank: int
    local_rank: int
    world_size: int
    nodes: int
    owner: str


def from_environment() -> Ranks:
    """Read SLURM_* under srun, SUBMITIT_LOCAL_* under the embedded launcher; elsewhere the world size is 1.

    Raises `KeyError` when the environment names a launcher and lacks one of its variables.
    """
    if os.environ.get("SUBMITIT_EXECUTOR") == "local":
        local = {name: os.environ[f"SUBMITIT_LOCAL_{name}"] for name in ("GLOBALID", "LOCALID", "NTASKS", "JOB_ID")}
        owner = f"local-{os.environ[LAUNCH_VARIABLE]}-{local['JOB_ID']}"
        return Ranks(int(local["GLOBALID"]), int(local["LOCALID"]), int(local["NTASKS"]), 1, owner)
    if "SLURM_STEP_ID" in os.environ and "SLURM_PROCID" in os.environ:
        slurm = {name: os.environ[f"SLURM_{name}"] for name in ("PROCID", "LOCALID", "NTASKS", "JOB_NUM_NODES")}
        numbers = [int(slurm[name]) for name in ("PROCID", "LOCALID", "NTASKS", "JOB_NUM_NODES")]
        return Ranks(*numbers, slurm_owner())
    return Ranks(0, 0, 1, 1, f"alone-{os.getpid()}-{time.time_ns()}")


def slurm_owner() -> str:
    """Return the name of this execution of this job, which no other execution has.

    Clusters that share a folder give out the same ids, and one cluster gives them out again; the job's name is unique.
    """
    job = f"{os.environ['SLURM_JOB_NAME']}-{slurm_element()}"
    return f"slurm-{job}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"


def slurm_job() -> JobId:
    """Return the id of this job, with its cluster where the site names clusters."""
    return JobId.of(slurm_element(), os.environ.get(CLUSTER_VARIABLE))


def slurm_element() -> str:
    """Return the id of this job for Slurm's commands: A_T for an array element.

    One element of an array carries the array's own id as SLURM_JOB_ID, so the bare id can mean all of them.
    """
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ["SLURM_JOB_ID"]
