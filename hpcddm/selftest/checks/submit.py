"""Submitting: sbatch accepts the shape of every stage, with this site's partition, account and flags."""

import re
import subprocess
import time
from collections.abc import Callable

from hpcddm.launch.client import SlurmUnavailable, call, error_text, on, query, user_name
from hpcddm.launch.slurm_cluster import SlurmCluster, SlurmPartition
from hpcddm.selftest.evidence import checked
from hpcddm.selftest.verdict import Row, Verdict
from hpcddm.site import Resources, Site

Shapes = dict[str, Resources]
"""What the stages of a site ask for, by the name of a stage."""

ASSOCIATIONS = ("sacctmgr", "-n", "-P", "show", "assoc", f"user={user_name()}")
COMPLAINTS = (
    ("partition", r"partition name|invalid partition|no partition specified|not permitted to use this partition"),
    ("qos", r"\bqos specification|invalid ?qos"),
    ("account", r"account"),
    ("minutes", r"time ?limit"),
    ("constraint", r"feature specification|constraint"),
    ("gpus", r"gres|gpus?\b"),
    ("memory_gb", r"memory"),
    ("extra_sbatch", r"unrecognized option|invalid option|reservation|license|dependency"),
    ("nodes", r"node configuration|node count|more processors|cpu count|task count|nodes"),
)
"""Which key a refusal of sbatch is about, by words of it; the first that fits."""
VALID = {
    "partition": ("partitions", ("sinfo", "-h", "-o", "%R")),
    "qos": ("your QOS", (*ASSOCIATIONS, "format=QOS")),
    "account": ("your accounts", (*ASSOCIATIONS, "format=Account")),
    "minutes": ("limits", ("sinfo", "-h", "-o", "%R %l")),
    "constraint": ("features", ("sinfo", "-h", "-o", "%f")),
    "gpus": ("GPUs", ("sinfo", "-h", "-o", "%R %G")),
    "memory_gb": ("MB per node", ("sinfo", "-h", "-o", "%R %m")),
    "nodes": ("nodes and cores per node", ("sinfo", "-h", "-o", "%R %Dx%c")),
}
"""What the cluster has, per key."""


def shapes(site: Site, cluster: str | None = None) -> Shapes:
    """Every shape on a cluster once; the checked stage first."""
    found: dict[Resources, str] = {}
    for name in (checked(site, cluster), "", *site.stages):
        resources = site.resources_for(*name.partition("/")[::2])
        if resources.cluster == cluster:
            found.setdefault(resources, name)
    return {name: resources for resources, name in found.items()}


def evaluate_check(site: Site, text_of: Callable[[Resources], str], cluster: str | None = None) -> list[Row]:
    """What sbatch would refuse, one row for the stages that it says the same about; none where it accepts all."""
    partitions = _partitions(cluster)
    refused: dict[tuple[str, str], list[str]] = {}
    started = time.time()
    for stage, resources in shapes(site, cluster).items():
        against = _try(text_of(resources), cluster) or _too_long(resources, partitions)
        if against:
            refused.setdefault((against, advice(site, stage, against)), []).append(stage)
    seconds = time.time() - started
    found = []
    for (against, what), stages in refused.items():
        names = ", ".join(stage or "all others" for stage in stages)
        found.append(Row("submit", Verdict.FAIL, seconds, f"{against} ({names})", what))
    return found


def is_refused(rows: list[Row], stage: str) -> bool:
    """Whether a stage is among those of the rows."""
    return any(stage in row.seen.rpartition("(")[2].rstrip(")").split(", ") for row in rows)


def accepted(site: Site, seconds: float, cluster: str | None = None) -> Row:
    """The row of a site where sbatch accepts everything."""
    names = ", ".join(name or "all others" for name in shapes(site, cluster))
    return Row("submit", Verdict.OK, seconds, f"sbatch accepts the shapes of: {names}")


def advice(site: Site, stage: str, against: str) -> str:
    """The key that a refusal is about, and what would be valid."""
    key = next((key for key, pattern in COMPLAINTS if re.search(pattern, against, re.IGNORECASE)), None)
    if key is None:
        return "look at partition, account, qos, resources, extra_sbatch"
    place = "gpus_per_node, gpu_type or gpus_flag" if key == "gpus" else key_of(site, stage, key)
    return f"set {place}{_valid(key)}"


def key_of(site: Site, stage: str, key: str) -> str:
    """Where the value of a key comes from for a stage, or where it is to be set."""
    for place in (stage, stage.partition("/")[0]):
        if key in site.stages.get(place, {}):
            return f"stages.{place}.{key}"
    if key in Site.model_fields and getattr(site.resources, key, None) is None:
        return key
    return f"resources.{key}"


def _valid(key: str) -> str:
    if key not in VALID:
        return ""
    label, command = VALID[key]
    try:
        found = sorted({line.strip() for line in query(*command).splitlines()} - {"(null)", ""})
    except SlurmUnavailable:
        found = []
    return f"; {label} here: {', '.join(found)}" if found else f"; {label} cannot be asked for with {command[0]}"


def _try(script: str, cluster: str | None) -> str:
    """What sbatch would say against a script, or ''."""
    try:
        answer = call("sbatch", *on(cluster), "--test-only", script=script)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return complaint(answer) if answer.returncode else ""


def complaint(answer: subprocess.CompletedProcess[str]) -> str:
    """What sbatch says against a job, without its own name in it."""
    said = re.sub(r"(sbatch: )?(error|fatal|allocation failure): ", "", error_text(answer))
    return said or "sbatch failed without a word"


def _too_long(resources: Resources, partitions: dict[str, SlurmPartition]) -> str:
    """Where EnforcePartLimits is off, sbatch accepts a job above the time limit, and it waits for ever."""
    default = next((one.name for one in partitions.values() if one.is_default), "")
    asked = [partitions[name] for name in (resources.partition or default).split(",") if name in partitions]
    longest = max(asked, key=lambda one: one.max_minutes, default=None)
    # A QOS may lift the limit of the partition; then sbatch knows better.
    if longest is None or resources.qos or resources.minutes <= longest.max_minutes:
        return ""
    return f"{resources.minutes} minutes are above the time limit of {longest.name}, {longest.max_minutes}"


def _partitions(cluster: str | None) -> dict[str, SlurmPartition]:
    try:
        return SlurmCluster(cluster).partitions
    except SlurmUnavailable:
        return {}
