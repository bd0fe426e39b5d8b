"""Sizes, partitions and limits of a Slurm cluster, each queried from its controller once."""

import os
import re
from dataclasses import dataclass
from functools import cached_property

from hpcddm.config.site import Resources, Site
from hpcddm.launch.base import DEFAULT_MAX_ARRAY, Limits
from hpcddm.launch.slurm.client import SlurmUnavailable, on, query, user_name

UNLIMITED = 2**31


@dataclass(frozen=True)
class SlurmPartition:
    """One partition: True for the default one, longest time in minutes, most nodes of one job, and nodes in all."""

    name: str
    is_default: bool
    max_minutes: int
    max_nodes: int
    total_nodes: int = UNLIMITED


class SlurmCluster:
    """One cluster; every attribute raises `SlurmUnavailable` when its controller does not answer."""

    def __init__(self, name: str | None = None) -> None:
        self._on = on(name)
        """Flag that names the cluster; none for the default cluster of Slurm's commands."""

    @cached_property
    def config(self) -> dict[str, str]:
        """Keys and values of `scontrol show config`."""
        pairs = (line.partition("=")[::2] for line in query("scontrol", *self._on, "show", "config").splitlines())
        return {key.strip(): value.strip() for key, value in pairs}

    @cached_property
    def partitions(self) -> dict[str, SlurmPartition]:
        """Partitions by name, hidden ones included."""
        text = query("scontrol", *self._on, "--all", "--oneliner", "show", "partition")
        parsed = (_partition(line) for line in text.splitlines() if line.startswith("PartitionName="))
        return {partition.name: partition for partition in parsed}

    def partitions_of(self, requested: str | None) -> list[str]:
        """Return the names of the partitions of a job that requests `requested`; None for the default."""
        return (
            requested.split(",")
            if requested
            else [partition.name for partition in self.partitions.values() if partition.is_default]
        )

    def spare_nodes(self, resources: Resources) -> int:
        """Count the nodes that a job can spare in its smallest partition, beside those that it excludes."""
        names = self.partitions_of(resources.partition)
        total = min((self.partitions[name].total_nodes for name in names if name in self.partitions), default=UNLIMITED)
        excluded = query("scontrol", "show", "hostnames", resources.exclude).split() if resources.exclude else []
        return max(total - resources.nodes - len(excluded), 0)

    @property
    def max_array(self) -> int:
        """Number of elements that an array may have, 0 where there are no arrays."""
        size = _number(self.config.get("MaxArraySize"), DEFAULT_MAX_ARRAY)
        tasks = re.search(r"\bmax_array_tasks=(\d+)", self.config.get("SchedulerParameters", ""))
        return min(size, int(tasks[1])) if tasks else size

    @property
    def max_jobs(self) -> int:
        """Number of jobs that the controller keeps at a time, of all users together."""
        return _number(self.config.get("MaxJobCount"), UNLIMITED)

    @cached_property
    def association_limits(self) -> str:
        """The user's associations with their limits as the controller counts them; empty where none is enforced."""
        if not re.search("limits|safe", self.config.get("AccountingStorageEnforce", "none")):
            return ""
        try:
            return query("scontrol", *self._on, "show", "assoc_mgr", f"users={user_name()}", "flags=assoc")
        except SlurmUnavailable:
            return ""

    def limits(self, site: Site, num_jobs: int) -> Limits:
        """Return the cluster's limits for this user; the number of queries does not depend on `num_jobs`."""
        limit, reason = site.max_submitted, f"site key max_submitted: {site.max_submitted}"
        if limit is None:
            limit, reason = submit_limit(self.association_limits, site), "its limit for you"
        if limit is None and 2 * num_jobs > self.max_jobs:
            limit, reason = self.max_jobs, f"MaxJobCount {self.max_jobs}"
        # Where there are no arrays, every unit is a plain job.
        longest = max(self.max_array, 1)
        if limit is None:
            return Limits(longest)
        mine = query(
            "squeue", *self._on, "--all", "--noheader", "--array", f"--user={os.getuid()}", "--format=%i"
        ).split()
        reason += f", {len(mine)} of {limit} are taken"
        # A running job that submits itself anew is counted twice for a moment, and as many as may run do so.
        kept = min(site.max_parallel, limit // 2) if site.requeue == "resubmit" else 0
        if kept:
            reason += f", {kept} are kept free for jobs that submit themselves anew"
        return Limits(longest, max(limit - kept - len(mine), 0), reason)


def submit_limit(text: str, site: Site) -> int | None:
    """Return the limit on queued jobs of the user's association with the site's account, or with the default one.

    Limits of a QOS are not included: they show when sbatch refuses.
    """
    for record in re.split(r"^(?=ClusterName=)", text, flags=re.MULTILINE):
        head = record.partition("\n")[0]
        is_own = f"Account={site.account} " in head if site.account else "DefAssoc=Yes" in record
        limit = re.search(r"\bMaxSubmitJobs=(\d+)", record)
        if is_own and f"({os.getuid()})" in head and limit:
            return int(limit[1])
    return None


def _partition(line: str) -> SlurmPartition:
    values = dict(word.partition("=")[::2] for word in line.split())
    most, total = (_number(values.get(key), UNLIMITED) for key in ("MaxNodes", "TotalNodes"))
    longest = minutes(values.get("MaxTime", ""))
    return SlurmPartition(values["PartitionName"], values.get("Default") == "YES", longest, min(most, total), total)


def minutes(text: str) -> int:
    """Convert Slurm's [days-]hours:minutes:seconds to minutes; UNLIMITED for any other text."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if not match:
        return UNLIMITED
    days, hours, mins, _ = (int(part or 0) for part in match.groups())
    return (24 * days + hours) * 60 + mins


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isdecimal() else otherwise
