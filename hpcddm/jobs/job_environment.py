"""Environment of a process in its job: its rank, the job's allocation, and the node's names."""

import os
import re
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any

from hpcddm.errors import UserError
from hpcddm.runs.job import JobId

LAUNCH_VARIABLE = "HPCDDM_LAUNCH"
"""Variable set by the launcher for this machine: an identifier that is unique among all launches."""
CLUSTER_VARIABLE = "HPCDDM_CLUSTER"
"""Variable set by the batch script: the name of its cluster, if the site names clusters."""
STARTED_VARIABLE = "HPCDDM_STARTED"
"""Variable set by the batch script: its start, in seconds since the epoch."""
ENDS_VARIABLE = "HPCDDM_ENDS"
"""Variable set by the batch script: the job's time limit, in seconds since the epoch."""
MAX_DATA_THREADS = 8
"""Maximum number of threads that read samples; each holds a batch, and all share one interpreter."""


@dataclass(frozen=True)
class Ranks:
    """Rank of one process in its unit."""

    rank: int
    local_rank: int
    """Rank among the processes of the same node."""
    world_size: int
    nodes: int
    """Number of nodes."""
    owner: str
    """Name of the job's execution, which all its ranks share."""


def current_ranks() -> Ranks:
    """Read the rank of this process from the environment.

    The variables are SLURM_* under srun and SUBMITIT_LOCAL_* under the launcher for this machine. Without them the
    process is the only rank.

    Raises:
        KeyError: If a launcher's variables are incomplete.
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
    """Return a unique name for this execution of this job.

    Job ids alone are not unique: two clusters may assign equal ids, and a cluster reuses ids. The job's name is unique.
    """
    job = f"{os.environ['SLURM_JOB_NAME']}-{slurm_element()}"
    return f"slurm-{job}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"


def slurm_element() -> str:
    """Return the id of this job for Slurm's commands: ARRAY_TASK for an array element.

    SLURM_JOB_ID does not suffice: one element of each array has the array's id, which can also mean all elements.
    """
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ["SLURM_JOB_ID"]


@dataclass(frozen=True)
class Allocation:
    """Allocation of one execution of a job; a requeue starts another execution."""

    job: JobId | None
    """Id of the job or array element; None without a queue."""
    restart: int
    """Number of requeues before this execution."""
    nodes: int
    node_list: str
    ranks: int
    cpus: int
    gpus: int
    started: float
    ends: float | None
    """Time limit of the job, in seconds since the epoch; None if unknown."""

    def record(self) -> dict[str, Any]:
        """Return the fields for the record of an attempt: all but `ends`."""
        return {key: value for key, value in asdict(self).items() if key != "ends"}


def current_allocation(world_size: int, threads: int) -> Allocation:
    """Read the allocation from the SLURM_* variables; without a Slurm job it consists of this node.

    Args:
        world_size: Number of ranks.
        threads: Number of threads per rank.
    """
    started = float(os.environ.get(STARTED_VARIABLE) or time.time())
    if "SLURM_JOB_ID" not in os.environ:
        return Allocation(None, 0, 1, os.uname().nodename, world_size, world_size * threads, 0, started, None)
    nodes = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    ends = os.environ.get(ENDS_VARIABLE) or os.environ.get("SLURM_JOB_END_TIME")
    return Allocation(
        job=JobId.on_cluster(slurm_element(), os.environ.get(CLUSTER_VARIABLE)),
        restart=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        nodes=nodes,
        node_list=os.environ.get("SLURM_JOB_NODELIST", ""),
        ranks=world_size,
        cpus=_total(os.environ.get("SLURM_JOB_CPUS_PER_NODE", str(threads))),
        gpus=nodes * gpus_on_node(),
        started=started,
        ends=float(ends) if ends else None,
    )


def gpus_on_node() -> int:
    """Return the number of GPUs of this node that Slurm allocated to this job; 0 outside of a job."""
    return int(os.environ.get("SLURM_GPUS_ON_NODE") or 0)


def data_threads(cpus: int) -> int:
    """Return the number of threads that read samples ahead of a training; 0 on a single core.

    Args:
        cpus: Number of CPUs per rank.
    """
    return 0 if len(os.sched_getaffinity(0)) == 1 else min(max(cpus - 1, 1), MAX_DATA_THREADS)


def _total(per_node: str) -> int:
    """Sum the CPUs of Slurm's list per node, such as '4(x2),8': 4 on each of two nodes and 8 on the third."""
    return sum(int(count) * int(nodes or 1) for count, nodes in re.findall(r"([0-9]+)(?:\(x([0-9]+)\))?", per_node))


def node_address(nodes: int, interface: str | None) -> str:
    """Return the IPv4 address of this node for the other ranks; loopback for a unit on one node.

    Args:
        nodes: Number of nodes of the unit.
        interface: Network interface, from the site key `network_interface`; None for the address of the host name.

    Raises:
        UserError: If no such address exists.
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
    """Return the name of this node in Slurm, or its host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def _address_of(host: str) -> str:
    try:
        if not (found := socket.gethostbyname(host)).startswith("127."):
            return found
    except OSError as error:
        found = str(error.strerror)
    advice = f"set the site key network_interface to one of: {', '.join(_interfaces())}"
    raise UserError(f"{host}: its name gives no address that other nodes reach ({found}); {advice}")


def _interfaces() -> dict[str, str | None]:
    """List the network interfaces of this node, each with its first IPv4 address or None."""
    # Not at the top: the batch script runs two modules at every start that do not need psutil.
    import psutil

    return {
        name: next((address.address for address in addresses if address.family == socket.AF_INET), None)
        for name, addresses in psutil.net_if_addrs().items()
    }
