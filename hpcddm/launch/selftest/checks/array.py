"""Arrays: every element runs, once, and knows which one it is."""

from dataclasses import replace

from hpcddm.launch.selftest.check_results import CheckResult, ok, warn
from hpcddm.launch.selftest.evidence import Element, Evidence, TrialJob


def evaluate(evidence: Evidence) -> CheckResult:
    """Check that every element ran once under its own number, except the element that requeues itself."""
    job = int(evidence.submitted.get(TrialJob.ARRAY, 0))
    starts = [start for start in evidence.starts(TrialJob.ARRAY) if start.job == job]
    missing = sorted(set(range(Element.COUNT)) - {start.element for start in starts})
    if missing:
        row = evidence.missing_result(TrialJob.ARRAY, missing[0], "environment")
        which = f"element {missing[0]} of {Element.COUNT}: " if starts else ""
        return replace(row, finding=which + row.finding)
    twice = [start.element for start in starts if start.element != Element.REQUEUE and start.restart]
    if twice:
        finding = f"element {twice[0]} started again although it was not requeued by itself"
        return warn(None, finding, "preempted? else see requeue")
    submitted = (evidence.folder / "submitted").stat().st_mtime
    seconds = max(start.time for start in starts if not start.restart) - submitted
    elements = ", ".join(f"{job}_{index}" for index in range(Element.COUNT))
    return ok(seconds, f"{elements} ran, each once")
