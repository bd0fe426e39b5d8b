"""Check of requeueing: an element that must leave is requeued or resubmits itself, without affecting other elements.

Its step is part of the batch script.
"""

from hpcddm.launch.selftest.check_results import CheckResult, fail, not_run, ok
from hpcddm.launch.selftest.evidence import Element, Evidence, JobStart, TrialJob


def is_settled(evidence: Evidence) -> bool:
    """Tell if no further start will follow: the request was refused, or the element came back and has ended."""
    starts = evidence.starts(TrialJob.ARRAY, Element.REQUEUE)
    if len(starts) != 1:
        return bool(starts) and starts[-1].is_done
    return starts[0].is_done and not _is_accepted(starts[0])


def _is_accepted(first: JobStart) -> bool:
    """Tell if Slurm took the order; a client killed by a signal counts, as the order itself killed it with its job."""
    code = first.text("requeue.exit") or ""
    return code == "0" or (code.isdecimal() and int(code) > 128)


def _name(start: JobStart) -> str:
    return f"{start.job}_{start.element}"


def evaluate(evidence: Evidence) -> CheckResult:
    """Check that the way that the site key requeue names works from the batch script."""
    way, starts = evidence.site.requeue, evidence.starts(TrialJob.ARRAY, Element.REQUEUE)
    if way == "none" and starts:
        return ok(None, "not asked: the site says 'none', so the user submits again")
    if not starts or (len(starts) == 1 and starts[0].text("requeue.exit") is None):
        return evidence.missing_result(TrialJob.ARRAY, Element.REQUEUE, "requeue")
    first, again = starts[0], starts[1:]
    if not again:
        return _lost(evidence, way) if _is_accepted(first) else _refused(way, first)
    seconds = again[0].time - first.time
    if way == "resubmit":
        return ok(seconds, f"{_name(first)} resubmitted itself as {_name(again[0])}")
    if again[0].restart < 1:
        finding = f"{_name(first)} came back without a higher SLURM_RESTART_COUNT"
        return fail(seconds, finding, "set requeue: resubmit")
    along = [start for start in evidence.starts(TrialJob.ARRAY) if start.element != Element.REQUEUE and start.restart]
    if along:
        finding = f"the requeue of {_name(first)} took {_name(along[0])} along"
        return fail(seconds, finding, "set requeue: resubmit")
    return ok(seconds, f"{_name(first)} came back as restart {again[0].restart}, alone")


def _refused(way: str, first: JobStart) -> CheckResult:
    message = first.text("requeue.said") or f"exit {first.text('requeue.exit')}"
    if way == "resubmit":
        finding = f"sbatch is refused inside a job: {message}"
        return fail(None, finding, "set requeue: none, and submit again by hand after each slot")
    finding = f"scontrol requeue is refused: {message}"
    if first.text("sbatch.exit") == "0":
        return fail(None, finding, "set requeue: resubmit (sbatch answers inside a job)")
    advice = f"set requeue: none (sbatch does not answer inside a job either: {first.text('sbatch.said')})"
    return fail(None, finding, advice)


def _lost(evidence: Evidence, way: str) -> CheckResult:
    if TrialJob.ARRAY in evidence.waiting:
        return not_run(f"not back yet: {evidence.waiting[TrialJob.ARRAY]}", "try again with a longer --timeout")
    other = "resubmit" if way == "scontrol" else "none"
    return fail(None, "accepted, but the element never came back", f"set requeue: {other}")
