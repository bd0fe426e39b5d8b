"""Shapes of the stages, which sbatch must accept with this site's partition, account and flags; no job is needed."""

import re
import subprocess
import time
from collections.abc import Callable

from hpcddm.config.site import Resources, Site
from hpcddm.launch.selftest.check_results import CheckResult, CheckVerdict
from hpcddm.launch.selftest.evidence import checked_stage
from hpcddm.launch.slurm.client import SlurmUnavailable, call_slurm, cluster_flag, error_text
from hpcddm.launch.slurm.slurm_cluster import SlurmCluster, site_key

Shapes = dict[str, Resources]
"""Resources of the stages of a site, by the name of a stage."""

ERROR_PATTERNS = (
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
"""Site keys, each with the pattern of sbatch's refusals that are about it; the first match counts."""


def shapes(site: Site, cluster: str | None = None) -> Shapes:
    """List every shape on a cluster once, by the first stage of that shape; the checked stage comes first."""
    stage_of: dict[Resources, str] = {}
    for name in (checked_stage(site, cluster), "", *site.stages):
        resources = site.resources_for(*name.partition("/")[::2])
        if resources.cluster == cluster:
            stage_of.setdefault(resources, name)
    return {name: resources for resources, name in stage_of.items()}


def refusals(site: Site, text_of: Callable[[Resources], str], cluster: str | None = None) -> list[CheckResult]:
    """List what sbatch would refuse, one row for all stages with the same refusal; none where it accepts all."""
    known = SlurmCluster(cluster)
    refused: dict[tuple[str, str], list[str]] = {}
    started = time.time()
    for stage, resources in shapes(site, cluster).items():
        if refusal := _try(text_of(resources), cluster) or _never_starts(resources, known):
            refused.setdefault((refusal, advice(site, stage, refusal)), []).append(stage)
    seconds = time.time() - started
    rows = []
    for (refusal, remedy), stages in refused.items():
        names = ", ".join(stage or "all others" for stage in stages)
        rows.append(CheckResult(CheckVerdict.FAIL, seconds, f"{refusal} ({names})", remedy, "submit"))
    return rows


def is_refused(rows: list[CheckResult], stage: str) -> bool:
    """Tell if a stage is among those that the rows name."""
    return any(stage in row.finding.rpartition("(")[2].rstrip(")").split(", ") for row in rows)


def accepted_result(site: Site, seconds: float, cluster: str | None = None) -> CheckResult:
    """Return the row of a site where sbatch accepts every shape."""
    names = ", ".join(name or "all others" for name in shapes(site, cluster))
    return CheckResult(CheckVerdict.OK, seconds, f"sbatch accepts the shapes of: {names}", check="submit")


def advice(site: Site, stage: str, against: str) -> str:
    """Name the key that a refusal is about."""
    key = next((key for key, pattern in ERROR_PATTERNS if re.search(pattern, against, re.IGNORECASE)), None)
    if key is None:
        return "look at partition, account, qos, resources, extra_sbatch"
    return f"set {'gpus_per_node, gpu_type or gpus_flag' if key == 'gpus' else site_key(site, stage, key)}"


def _try(script: str, cluster: str | None) -> str:
    """Return the complaint of sbatch about a script; '' where it accepts the script."""
    try:
        completed = call_slurm("sbatch", *cluster_flag(cluster), "--test-only", script=script)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return sbatch_error(completed) if completed.returncode else ""


def sbatch_error(completed: subprocess.CompletedProcess[str]) -> str:
    """Return the error of sbatch about a job, without the name of the command."""
    message = re.sub(r"(sbatch: )?(error|fatal|allocation failure): ", "", error_text(completed))
    return message or "sbatch failed without a word"


def _never_starts(resources: Resources, cluster: SlurmCluster) -> str:
    """Return a complaint about resources that sbatch accepts and Slurm never starts, else ''."""
    try:
        fault = cluster.find_fault(resources)
    except SlurmUnavailable:
        return ""
    return fault[1] if fault else ""
