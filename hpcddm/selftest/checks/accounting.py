"""Accounting: sacct knows this user's jobs if and only if the site says so."""

import time

from hpcddm.launch.client import SlurmUnavailable, on, query
from hpcddm.selftest.evidence import Evidence, Part
from hpcddm.selftest.verdict import Row, Verdict

LATE_SECONDS = 10
"""Seconds by which accounting may lag behind the queue here; it can be minutes, and nothing relies on it."""


def evaluate_check(evidence: Evidence) -> Row:
    """Ask sacct for the jobs that have just run, and compare with the site key has_sacct."""
    started, job, expected = time.time(), evidence.submitted.get(Part.ARRAY), evidence.site.has_sacct
    try:
        is_known = _is_known(job, evidence.cluster)
    except SlurmUnavailable as error:
        seconds = time.time() - started
        if expected:
            return Row("accounting", Verdict.WARN, seconds, f"sacct does not answer: {error}", "set has_sacct: false")
        return Row("accounting", Verdict.OK, seconds, "no sacct, as the site says; costs come from our own records")
    seconds = time.time() - started
    if not expected:
        return Row("accounting", Verdict.WARN, seconds, "sacct answers here", "set has_sacct: true, for exact costs")
    if not is_known:
        finding = f"sacct does not know job {job} after {LATE_SECONDS} s"
        return Row("accounting", Verdict.WARN, seconds, finding, "it may be late; if it stays so, set has_sacct: false")
    return Row("accounting", Verdict.OK, seconds, f"sacct knows job {job}" if job else "sacct answers")


def _is_known(job: str | None, cluster: str | None) -> bool:
    """Tell if sacct has the job, or without a job if it answers; raises `SlurmUnavailable` when it does not."""
    command = ("sacct", *on(cluster), "-X", "-n", "-P", "-o", "JobID")
    if job is None:
        query(*command)
        return True
    deadline = time.time() + LATE_SECONDS
    while not (output := query(*command, "-j", job).strip()) and time.time() < deadline:
        time.sleep(1)
    return bool(output)
