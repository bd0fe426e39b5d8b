"""Sizes, partitions and limits of a Slurm cluster, each queried once from its controller."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from hpcddm.config.site import Resources, Site
from hpcddm.jobs.job_end import parse_job
from hpcddm.jobs.resource_requests import parse_minutes
from hpcddm.launch.base import DEFAULT_MAX_ARRAY, Limits
from hpcddm.launch.slurm.client import SlurmUnavailable, cluster_flag, query_slurm
from hpcddm.runs.group_permissions import current_user

UNLIMITED = 2**31


@dataclass(frozen=True)
class SlurmPartition:
    """One partition of a cluster."""

    name: str
    is_default: bool
    max_minutes: int
    """Time limit in minutes."""
    max_nodes: int
    """Maximum number of nodes per job."""
    total_nodes: int = UNLIMITED
    """Number of nodes in the partition."""


class SlurmCluster:
    """One cluster; every property raises `SlurmUnavailable` if the controller does not answer.

    Args:
        name: Name of the cluster; None for the default cluster of Slurm's commands.
    """

    def __init__(self, name: str | None = None) -> None:
        self._on = cluster_flag(name)

    @cached_property
    def config(self) -> dict[str, str]:
        """Keys and values of `scontrol show config`."""
        return parse_config(query_slurm("scontrol", *self._on, "show", "config"))

    @cached_property
    def partitions(self) -> dict[str, SlurmPartition]:
        """Partitions by name, including hidden ones."""
        text = query_slurm("scontrol", *self._on, "--all", "--oneliner", "show", "partition")
        parsed = (_partition(line) for line in text.splitlines() if line.startswith("PartitionName="))
        return {partition.name: partition for partition in parsed}

    def partitions_of(self, requested: str | None) -> list[str]:
        """Return the names of a job's partitions.

        Args:
            requested: Partitions that the job requests, separated by commas; None for the default partition.
        """
        if requested:
            return requested.split(",")
        return [partition.name for partition in self.partitions.values() if partition.is_default]

    def find_fault(self, resources: Resources) -> tuple[str, str] | None:
        """Find what Slurm may accept but never start.

        Where EnforcePartLimits is off, sbatch accepts jobs above the limits of a partition, and they wait for ever.

        Returns:
            The key of the resources, and the reason; None for all other resources.
        """
        names = self.partitions_of(resources.partition)
        for name in names:
            if name not in self.partitions:
                return "partition", f"invalid partition {name}, there are {', '.join(self.partitions)}"
        # A QOS may lift the limits of a partition; then only sbatch can tell.
        if resources.qos or not names:
            return None
        chosen = [self.partitions[name] for name in names]
        longest = max(chosen, key=lambda partition: partition.max_minutes)
        largest = max(chosen, key=lambda partition: partition.max_nodes)
        if resources.minutes > longest.max_minutes:
            limit = f"the time limit of {longest.name}, {longest.max_minutes}"
            return "minutes", f"{resources.minutes} minutes are above {limit}"
        if resources.nodes > largest.max_nodes:
            return "nodes", f"{resources.nodes} nodes, partition {largest.name} allows {largest.max_nodes}"
        return None

    def spare_nodes(self, resources: Resources) -> int:
        """Count the nodes that a job could additionally exclude in its smallest partition."""
        names = self.partitions_of(resources.partition)
        total = min((self.partitions[name].total_nodes for name in names if name in self.partitions), default=UNLIMITED)
        excluded = query_slurm("scontrol", "show", "hostnames", resources.exclude).split() if resources.exclude else []
        return max(total - resources.nodes - len(excluded), 0)

    @property
    def max_array(self) -> int:
        """Maximum number of elements per array; 0 on a cluster without arrays."""
        size = _number(self.config.get("MaxArraySize"), DEFAULT_MAX_ARRAY)
        tasks = re.search(r"\bmax_array_tasks=(\d+)", self.config.get("SchedulerParameters", ""))
        return min(size, int(tasks[1])) if tasks else size

    @property
    def max_jobs(self) -> int:
        """Maximum number of jobs of all users in the controller."""
        return _number(self.config.get("MaxJobCount"), UNLIMITED)

    @cached_property
    def association_limits(self) -> str:
        """Output of `scontrol show assoc_mgr` for this user; empty if the cluster does not enforce limits."""
        if not re.search("limits|safe", self.config.get("AccountingStorageEnforce", "none")):
            return ""
        with suppress(SlurmUnavailable):
            return query_slurm("scontrol", *self._on, "show", "assoc_mgr", f"users={current_user()}", "flags=assoc")
        return ""

    def limits(self, site: Site, num_jobs: int) -> Limits:
        """Return the cluster's limits for this user.

        Args:
            site: The site.
            num_jobs: Number of jobs to submit.
        """
        limit, reason = site.max_submitted, f"site key max_submitted: {site.max_submitted}"
        if limit is None:
            limit, reason = submit_limit(self.association_limits, site), "its limit for you"
        if limit is None and 2 * num_jobs > self.max_jobs:
            limit, reason = self.max_jobs, f"MaxJobCount {self.max_jobs}"
        # On a cluster without arrays every unit is a separate job.
        longest = max(self.max_array, 1)
        if limit is None:
            return Limits(longest)
        mine = query_slurm(
            "squeue", *self._on, "--all", "--noheader", "--array", f"--user={os.getuid()}", "--format=%i"
        ).split()
        reason += f", {len(mine)} of {limit} are taken"
        # A running job that resubmits itself briefly counts twice; all running jobs may do so at once.
        kept = min(site.max_parallel, limit // 2) if site.requeue == "resubmit" else 0
        if kept:
            reason += f", {kept} are kept free for jobs that resubmit themselves"
        return Limits(longest, max(limit - kept - len(mine), 0), reason)


def parse_config(text: str) -> dict[str, str]:
    """Parse the keys and values of `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def submit_limit(text: str, site: Site) -> int | None:
    """Return the limit on queued jobs of the user's association with the site's account; None for no limit.

    Limits of a QOS are not included; sbatch reports them.

    Args:
        text: Output of `scontrol show assoc_mgr`.
        site: The site; without an account the user's default association counts.
    """
    for record in re.split(r"^(?=ClusterName=)", text, flags=re.MULTILINE):
        head = record.partition("\n")[0]
        is_own = f"Account={site.account} " in head if site.account else "DefAssoc=Yes" in record
        limit = re.search(r"\bMaxSubmitJobs=(\d+)", record)
        if is_own and f"({os.getuid()})" in head and limit:
            return int(limit[1])
    return None


def _partition(line: str) -> SlurmPartition:
    values = parse_job(line)
    most, total = (_number(values.get(key), UNLIMITED) for key in ("MaxNodes", "TotalNodes"))
    longest = parse_minutes(values.get("MaxTime", "")) or UNLIMITED
    return SlurmPartition(values["PartitionName"], values.get("Default") == "YES", longest, min(most, total), total)


def site_key(site: Site, place: str, key: str) -> str:
    """Return the full site key from which a stage or a unit takes a value, or under which it is to be set."""
    for name in (place, place.partition("/")[0]):
        if key in site.stages.get(name, {}):
            return f"stages.{name}.{key}"
    return key if key in Site.model_fields and getattr(site.resources, key, None) is None else f"resources.{key}"


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isdecimal() else otherwise
