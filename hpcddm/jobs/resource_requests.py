"""Memory and time that a job requests, and higher requests for its next attempt, for scontrol and sbatch."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any

MORE_MEMORY = 1.5
"""Factor by which the advice to the user raises a job's memory after the job ran out of it."""
UNITS = {"K": 2**-20, "M": 2**-10, "": 2**-10, "G": 1.0, "T": 2.0**10}
"""Slurm's units of memory, in GB."""


@dataclass(frozen=True)
class ResourceRequest:
    """Memory per node and time limit of a job.

    Args:
        memory_gb: Memory per node in GB; None if the job does not request memory.
        minutes: Time limit in minutes; None for none.
        cpus: Number of CPUs per node if the job requests memory per CPU; None if it requests memory per node.

    Examples:
        >>> before = parse_request({"MinMemoryNode": "4G", "TimeLimit": "00:30:00"})
        >>> before
        ResourceRequest(memory_gb=4.0, minutes=30, cpus=None)
        >>> after, remark = raise_request(before, {"memory_gb": 1.5}, {}, is_memory=True, is_time=False)
        >>> remark, after.flags(), after.updates(before)
        ('asks for 6 GB now', '--mem=6144M --time=30', 'MinMemoryNode=6144')
    """

    memory_gb: float | None
    minutes: int | None
    cpus: int | None = None

    def advised_memory_gb(self, factor: float = MORE_MEMORY) -> int | None:
        """Return the memory in GB to request if this was too little; None if no memory was requested."""
        return math.ceil(self.memory_gb * factor) if self.memory_gb else None

    def updates(self, before: "ResourceRequest") -> str:
        """Return the arguments of `scontrol update` that set this request's memory; empty if the memory is unchanged.

        They do not include the time limit, because only operators can raise the time limit of an existing job.
        """
        if not self.memory_gb or self.memory_gb == before.memory_gb:
            return ""
        return f"MinMemory{'CPU' if self.cpus else 'Node'}={self._megabytes()}"

    def flags(self) -> str:
        """Return the options of sbatch for this request, separated by spaces."""
        options = []
        if self.memory_gb:
            options.append(f"--mem{'-per-cpu' if self.cpus else ''}={self._megabytes()}M")
        if self.minutes:
            options.append(f"--time={self.minutes}")
        return " ".join(options)

    def _megabytes(self) -> int:
        return int((self.memory_gb or 0) * 1024 // (self.cpus or 1))


def parse_request(job: dict[str, str]) -> ResourceRequest:
    """Read the request of a job.

    Args:
        job: Fields of `scontrol show job`, by name.
    """
    cpus = int(job.get("NumCPUs", "1")) // max(int(job.get("NumNodes", "1")), 1)
    by_node, by_cpu = (_gigabytes(job.get(key, "")) for key in ("MinMemoryNode", "MinMemoryCPU"))
    if by_cpu:
        return ResourceRequest(by_cpu * cpus, parse_minutes(job.get("TimeLimit", "")), cpus)
    return ResourceRequest(by_node, parse_minutes(job.get("TimeLimit", "")))


def raise_request(
    before: ResourceRequest, factors: dict[str, float], job: dict[str, str], is_memory: bool, is_time: bool
) -> tuple[ResourceRequest, str]:
    """Raise a request for the next attempt, up to the largest node and the time limit of the partition.

    Args:
        before: Request of the last attempt.
        factors: Factors by `memory_gb` and `minutes`, from the site key `raise_on_retry`.
        job: Fields of `scontrol show job`, with NodeMemory (MB) and PartitionTime of the job's partition.
        is_memory: True if the last attempt ran out of memory.
        is_time: True if the last attempt ran out of time.

    Returns:
        The new request, and a remark for the user.
    """
    changes: dict[str, Any] = {}
    remarks = []
    if is_memory and before.memory_gb and "memory_gb" in factors:
        most = _gigabytes(job.get("NodeMemory", "")) or math.inf
        memory = min(before.advised_memory_gb(factors["memory_gb"]) or 0, most)
        if memory > before.memory_gb:
            changes["memory_gb"] = memory
            remarks.append(f"asks for {memory:g} GB now")
        else:
            remarks.append(f"no node of its partition has more than {before.memory_gb:g} GB")
    if is_time and before.minutes and "minutes" in factors:
        longest = parse_minutes(job.get("PartitionTime", "")) or math.inf
        limit = min(math.ceil(before.minutes * factors["minutes"]), longest)
        if limit > before.minutes:
            changes["minutes"] = limit
            remarks.append(f"asks for {limit} minutes now")
        else:
            remarks.append(f"its partition allows no more than {before.minutes} minutes")
    return replace(before, **changes), "; ".join(remarks)


def parse_minutes(text: str) -> int | None:
    """Convert Slurm's [days-][hours:]minutes:seconds to minutes; None for anything else, such as UNLIMITED."""
    return parse_seconds(text) // 60 or None


def parse_seconds(text: str) -> int:
    """Convert Slurm's [days-][hours:]minutes:seconds to seconds; 0 for anything else."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    days, hours, mins, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    return ((24 * days + hours) * 60 + mins) * 60 + seconds


def _gigabytes(text: str) -> float | None:
    match = re.fullmatch(r"([0-9.]+)([KMGT]?)[+]?", text)
    return float(match[1]) * UNITS[match[2]] if match and float(match[1]) else None
