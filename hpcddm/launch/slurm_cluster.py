"""What a Slurm controller says about itself: sizes, partitions, limits; each asked for once."""

import os
import re
from dataclasses import dataclass
from functools import cached_property

from hpcddm.launch.chunks import DEFAULT_MAX_ARRAY, Limits
from hpcddm.launch.client import SlurmUnavailable, on, query, user_name
from hpcddm.site import Resources, Site

UNLIMITED = 2**31


@dataclass(frozen=True)
class SlurmPartition:
    """One partition: whether jobs that name none go there, the longest time, the most nodes of one job and in all."""

    name: str
    is_default: bool
    max_minutes: int
    max_nodes: int
    total_nodes: int = UNLIMITED


class SlurmCluster:
    """One cluster; every attribute raises `SlurmUnavailable` when nobody answers."""

    def __init__(self, name: str | None = None) -> None:
        self._on = on(name)
        """Flag that names the cluster; none for the one that Slurm's commands talk to by default."""

    @cached_property
    def config(self) -> dict[str, str]:
        """`scontrol show config`."""
        pairs = (line.partition("=")[::2] for line in query("scontrol", *self._on, "show", "config").splitlines())
        return {key.strip(): value.strip() for key, value in pairs}

    @cached_property
    def partitions(self) -> dict[str, SlurmPartition]:
        """All partitions, hidden ones too."""
        text = query("scontrol", *self._on, "--all", "--oneliner", "show", "partition")
        found = (_partition(line) for line in text.splitlines() if line.startswith("PartitionName="))
        return {one.name: one for one in found}

    def partitions_of(self, asked: str | None) -> list[str]:
        """Names of the partitions to which a job goes that asks for these, or for none."""
        return asked.split(",") if asked else [one.name for one in self.partitions.values() if one.is_default]

    def spare_nodes(self, asked: Resources) -> int:
        """Number of nodes that a job can do without in its smallest partition, beside those that it excludes."""
        names = self.partitions_of(asked.partition)
        total = min((self.partitions[name].total_nodes for name in names if name in self.partitions), default=UNLIMITED)
        excluded = query("scontrol", "show", "hostnames", asked.exclude).split() if asked.exclude else []
        return max(total - asked.nodes - len(excluded), 0)

    @property
    def max_array(self) -> int:
        """Number of elements that an array may have, 0 where there are no arrays."""
        size = _number(self.config.get("MaxArraySize"), DEFAULT_MAX_ARRAY)
        tasks = re.search(r"\bmax_array_tasks=(\d+)", self.config.get("SchedulerParameters", ""))
        return min(size, int(tasks[1])) if tasks else size

    @property
    def max_jobs(self) -> int:
        """How many jobs the controller keeps at a time, those of all users together."""
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

    def limits(self, site: Site, wanted: int) -> Limits:
        """What the cluster takes from this user; the number of calls does not depend on `wanted`."""
        limit, reason = site.max_submitted, f"site key max_submitted: {site.max_submitted}"
        if limit is None:
            limit, reason = submit_limit(self.association_limits, site), "its limit for you"
        if limit is None and 2 * wanted > self.max_jobs:
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
    """How many jobs the user's association with the site's account, or with the default one, may have in the queue.

    Those of a QOS are not in here: they show when sbatch refuses.
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
    """Slurm's [days-]hours:minutes:seconds in minutes."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if not match:
        return UNLIMITED
    days, hours, mins, _ = (int(part or 0) for part in match.groups())
    return (24 * days + hours) * 60 + mins


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isdigit() else otherwise
