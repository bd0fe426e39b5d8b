"""Allocation that the scheduler gave to this job: nodes, processors and time."""

import os
import re
import time
from dataclasses import asdict, dataclass
from typing import Any

from hpcddm.rundir.job import JobId
from hpcddm.runtime.ranks import slurm_job

STARTED_VARIABLE = "HPCDDM_STARTED"
"""Set by the batch script: its start, in seconds since the epoch."""
ENDS_VARIABLE = "HPCDDM_ENDS"
"""Set by the batch script: the end of the job by its time limit, in seconds since the epoch."""


@dataclass(frozen=True)
class Allocation:
    """One execution of one job; a requeue starts the next one."""

    job: JobId | None
    """The array element; None without a queue."""
    restart: int
    nodes: int
    node_list: str
    ranks: int
    cpus: int
    gpus: int
    started: float
    ends: float | None
    """End of the job by its time limit, in seconds since the epoch; None where it is unknown."""

    def record(self) -> dict[str, Any]:
        """Return the fields that the record of an attempt keeps: all but `ends`."""
        return {key: value for key, value in asdict(self).items() if key != "ends"}


def from_environment(world_size: int, threads: int) -> Allocation:
    """Read the allocation from SLURM_* inside a job; elsewhere it holds this node and the unit's own processes."""
    started = float(os.environ.get(STARTED_VARIABLE) or time.time())
    if "SLURM_JOB_ID" not in os.environ:
        return Allocation(None, 0, 1, os.uname().nodename, world_size, world_size * threads, 0, started, None)
    nodes = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    ends = os.environ.get(ENDS_VARIABLE) or os.environ.get("SLURM_JOB_END_TIME")
    return Allocation(
        job=slurm_job(),
        restart=restart_count(),
        nodes=nodes,
        node_list=os.environ.get("SLURM_JOB_NODELIST", ""),
        ranks=world_size,
        cpus=_total(os.environ.get("SLURM_JOB_CPUS_PER_NODE", str(threads))),
        gpus=nodes * gpus_on_node(),
        started=started,
        ends=float(ends) if ends else None,
    )


def gpus_on_node() -> int:
    """Return the number of GPUs of this node that Slurm gave to this job; 0 outside of a job."""
    return int(os.environ.get("SLURM_GPUS_ON_NODE") or 0)


def restart_count() -> int:
    """Return the number of times that this job was requeued before."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def _total(per_node: str) -> int:
    """Sum the processors of Slurm's list per node, such as '4(x2),8': 4 on each of two nodes and 8 on the third."""
    groups = re.findall(r"([0-9]+)(?:\(x([0-9]+)\))?", per_node)
    return sum(int(count) * int(nodes or 1) for count, nodes in groups)
