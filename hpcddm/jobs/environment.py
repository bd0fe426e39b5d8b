"""Environment of a process inside its job: its rank, the allocation of the job, and the names of its node."""

import os
import re
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any

from hpcddm.errors import UserError
from hpcddm.runs.job import JobId

LAUNCH_VARIABLE = "HPCDDM_LAUNCH"
"""Set by the embedded launcher: an identifier that no other launch on any machine has."""
CLUSTER_VARIABLE = "HPCDDM_CLUSTER"
"""Set by the batch script: the name of its cluster, where the site names clusters."""
STARTED_VARIABLE = "HPCDDM_STARTED"
"""Set by the batch script: its start, in seconds since the epoch."""
ENDS_VARIABLE = "HPCDDM_ENDS"
"""Set by the batch script: the end of the job by its time limit, in seconds since the epoch."""
MOST_DATA_THREADS = 8
"""Largest number of threads that read samples: every one holds a batch, and they share one interpreter."""


@dataclass(frozen=True)
class Ranks:
    """Place of one process in its unit; `owner` is the name of the execution that all its ranks share."""

    rank: int
    local_rank: int
    world_size: int
    nodes: int
    owner: str


def current_ranks() -> Ranks:
    """Read rank and world size from SLURM_* under srun, SUBMITIT_LOCAL_* under the embedded launcher; else (0, 1).

    Raises `KeyError` when the environment names a launcher and lacks one of its variables.
    """
    if os.environ.get("SUBMITIT_EXECUTOR") == "local":
        local = {name: os.environ[f"SUBMITIT_LOCAL_{name}"] for name in ("GLOBALID", "LOCALID", "NTASKS", "JOB_ID")}
        owner = f"local-{os.environ[LAUNCH_VARIABLE]}-{local['JOB_ID']}"
        return Ranks(int(local["GLOBALID"]), int(local["LOCALID"]), int(local["NTASKS"]), 1, owner)
    if "SLURM_STEP_ID" in os.environ and "SLURM_PROCID" in os.environ:
        names = ("PROCID", "LOCALID", "NTASKS", "JOB_NUM_NODES")
        rank, local_rank, world_size, nodes = (int(os.environ[f"SLURM_{name}"]) for name in names)
        return Ranks(rank, local_rank, world_size, nodes, slurm_owner())
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


def current_allocation(world_size: int, threads: int) -> Allocation:
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


def data_threads(cpus: int) -> int:
    """Return the number of threads that read samples ahead of a training whose ranks have so many processors each.

    On a single core there are none: they could not run ahead of the training, only interrupt it.
    """
    return 0 if len(os.sched_getaffinity(0)) == 1 else min(max(cpus - 1, 1), MOST_DATA_THREADS)


def restart_count() -> int:
    """Return the number of times that this job was requeued before."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def _total(per_node: str) -> int:
    """Sum the processors of Slurm's list per node, such as '4(x2),8': 4 on each of two nodes and 8 on the third."""
    groups = re.findall(r"([0-9]+)(?:\(x([0-9]+)\))?", per_node)
    return sum(int(count) * int(nodes or 1) for count, nodes in groups)


def own_address(nodes: int, interface: str | None) -> str:
    """Return the IPv4 address of this node on the site's interface, or by its name; loopback on a single node.

    Raises `UserError` naming the site key network_interface where neither gives one.
    """
    if nodes == 1:
        return "127.0.0.1"
    if interface is None:
        return _address_of(socket.gethostname())
    interfaces = _interfaces()
    if address := interfaces.get(interface):
        return address
    raise UserError(
        f"site key network_interface: {socket.gethostname()} has no interface {interface} with an IPv4 address;"
        f" it has: {', '.join(interfaces)}"
    )


def node_name() -> str:
    """Return the name by which Slurm knows this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def _address_of(host: str) -> str:
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        reason = error.strerror
    else:
        if not address.startswith("127."):
            return address
        reason = address
    raise UserError(
        f"{host}: its name gives no address that other nodes reach ({reason});"
        f" set the site key network_interface to one of: {', '.join(_interfaces())}"
    )


def _interfaces() -> dict[str, str | None]:
    """List the network interfaces of this node, each with its first IPv4 address; None for one without."""
    # Not at the top: the batch script calls the gate and the verdict, which need no psutil, at every start.
    import psutil

    return {
        name: next((address.address for address in addresses if address.family == socket.AF_INET), None)
        for name, addresses in psutil.net_if_addrs().items()
    }
