"""Requests of a job for memory and time, and those of its next attempt, in the words of scontrol and of sbatch."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any

MORE_MEMORY = 1.5
"""Factor for the memory of the advice to the user after there was too little."""
UNITS = {"K": 2**-20, "M": 2**-10, "": 2**-10, "G": 1.0, "T": 2.0**10}
"""Slurm's units of memory in GB."""


@dataclass(frozen=True)
class Request:
    """Memory of a node in GB and minutes, None where a job requested nothing in particular."""

    memory_gb: float | None
    minutes: int | None
    cpus: int | None = None
    """Number of processors among which the memory of a node is divided; None where a job requests it as a whole."""

    def advised_memory_gb(self, factor: float = MORE_MEMORY) -> int | None:
        """Memory to request, in GB, where this was too little; None where none was requested."""
        return math.ceil(self.memory_gb * factor) if self.memory_gb else None

    def updates(self, before: "Request") -> str:
        """Return the arguments of `scontrol update` that change the memory to this; empty where it does not differ.

        The time limit of a job that exists is for operators to raise.
        """
        if not self.memory_gb or self.memory_gb == before.memory_gb:
            return ""
        return f"MinMemory{'CPU' if self.cpus else 'Node'}={self._megabytes()}"

    def flags(self) -> str:
        """Return the options of sbatch for this request."""
        options = []
        if self.memory_gb:
            options.append(f"--mem{'-per-cpu' if self.cpus else ''}={self._megabytes()}M")
        if self.minutes:
            options.append(f"--time={self.minutes}")
        return " ".join(options)

    def _megabytes(self) -> int:
        return int((self.memory_gb or 0) * 1024 // (self.cpus or 1))


def request_of(job: dict[str, str]) -> Request:
    """Read the request of a job from the words of `scontrol show job`."""
    cpus = int(job.get("NumCPUs", "1")) // max(int(job.get("NumNodes", "1")), 1)
    by_node, by_cpu = (_gigabytes(job.get(key, "")) for key in ("MinMemoryNode", "MinMemoryCPU"))
    if by_cpu:
        return Request(by_cpu * cpus, minutes(job.get("TimeLimit", "")), cpus)
    return Request(by_node, minutes(job.get("TimeLimit", "")))


def raised(
    before: Request, factors: dict[str, float], job: dict[str, str], is_memory: bool, is_time: bool
) -> tuple[Request, str]:
    """Raise the request for the next attempt, within the partition's largest node and time limit; also return a remark.

    factors: the site key escalate; job: the words of `scontrol show job`, with NodeMemory (MB) and PartitionTime of its
    partition; is_memory, is_time: what there was too little of.
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
        longest = minutes(job.get("PartitionTime", "")) or math.inf
        limit = min(math.ceil(before.minutes * factors["minutes"]), longest)
        if limit > before.minutes:
            changes["minutes"] = limit
            remarks.append(f"asks for {limit} minutes now")
        else:
            remarks.append(f"its partition allows no more than {before.minutes} minutes")
    return replace(before, **changes), "; ".join(remarks)


def minutes(text: str) -> int | None:
    """Convert Slurm's [days-][hours:]minutes:seconds to minutes; None for none or no limit."""
    return seconds_of(text) // 60 or None


def seconds_of(text: str) -> int:
    """Convert Slurm's [days-][hours:]minutes:seconds to seconds; 0 for anything else."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    days, hours, mins, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    return ((24 * days + hours) * 60 + mins) * 60 + seconds


def _gigabytes(text: str) -> float | None:
    match = re.fullmatch(r"([0-9.]+)([KMGT]?)[+]?", text)
    return float(match[1]) * UNITS[match[2]] if match and float(match[1]) else None
