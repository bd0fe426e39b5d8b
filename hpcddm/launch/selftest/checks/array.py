"""Arrays: every element runs, once, and knows which one it is."""

from dataclasses import replace

from hpcddm.launch.selftest.check_results import CheckResult, ok, warn
from hpcddm.launch.selftest.evidence import Element, Evidence, TrialJob


def evaluate(evidence: Evidence) -> CheckResult:
    """Check that every element ran once under its own number, except the element that requeues itself."""
    job = int(evidence.submitted.get(TrialJob.ARRAY, 0))
    starts = [start for start in evidence.starts(TrialJob.ARRAY) if start.job == job]
    if missing := sorted(set(range(Element.COUNT)) - {start.element for start in starts}):
        row = evidence.missing_result(TrialJob.ARRAY, missing[0], "environment")
        return replace(row, finding=(f"element {missing[0]} of {Element.COUNT}: " if starts else "") + row.finding)
    if twice := [start.element for start in starts if start.element != Element.REQUEUE and start.restart]:
        finding = f"element {twice[0]} started again although it was not requeued by itself"
        return warn(None, finding, "preempted? else see requeue")
    seconds = max(start.time for start in starts if not start.restart) - (evidence.folder / "submitted").stat().st_mtime
    elements = ", ".join(f"{job}_{index}" for index in range(Element.COUNT))
    return ok(seconds, f"{elements} ran, each once")
