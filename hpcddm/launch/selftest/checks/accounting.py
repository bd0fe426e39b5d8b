"""Accounting: sacct lists this user's jobs if and only if the site key has_sacct is true."""

import time

from hpcddm.launch.selftest.check_results import CheckResult, ok, warn
from hpcddm.launch.selftest.evidence import Evidence, TrialJob
from hpcddm.launch.slurm.client import SlurmUnavailable, cluster_flag, query_slurm

LATE_SECONDS = 10
"""Seconds by which accounting may lag behind the queue here; it can be minutes, and nothing relies on it."""


def _is_known(job: str | None, cluster: str | None) -> bool:
    """Tell if sacct has the job, or without a job if it answers; raises `SlurmUnavailable` when it does not."""
    command = ("sacct", *cluster_flag(cluster), "-X", "-n", "-P", "-o", "JobID")
    if job is None:
        query_slurm(*command)
        return True
    deadline = time.time() + LATE_SECONDS
    while not (output := query_slurm(*command, "-j", job).strip()) and time.time() < deadline:
        time.sleep(1)
    return bool(output)


def evaluate(evidence: Evidence) -> CheckResult:
    """Query sacct for the jobs that have just run, and compare with the site key has_sacct."""
    started, job, expected = time.time(), evidence.submitted.get(TrialJob.ARRAY), evidence.site.has_sacct
    try:
        is_known = _is_known(job, evidence.cluster)
    except SlurmUnavailable as error:
        seconds = time.time() - started
        if expected:
            return warn(seconds, f"sacct does not answer: {error}", "set has_sacct: false")
        return ok(seconds, "no sacct, as the site says; costs come from our own records")
    seconds = time.time() - started
    if not expected:
        return warn(seconds, "sacct answers here", "set has_sacct: true, for exact costs")
    if not is_known:
        finding = f"sacct does not know job {job} after {LATE_SECONDS} s"
        return warn(seconds, finding, "it may be late; if it stays so, set has_sacct: false")
    return ok(seconds, f"sacct knows job {job}" if job else "sacct answers")
