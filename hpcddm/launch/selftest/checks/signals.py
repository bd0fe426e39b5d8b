"""Signals: what Slurm sends to a job reaches the Python process, which saves and leaves then."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from hpcddm.files import atomic
from hpcddm.launch.selftest.check_results import CheckResult, fail, ok, warn
from hpcddm.launch.selftest.evidence import Element, Evidence, TrialJob

SIGNALS = ("USR2", "TERM")
WAITING_SECONDS = 8
ADVICE = (
    "start Python with 'exec' in the site key container or the wrapper, or ask the cluster's support"
    " for SignalChildrenProcesses=yes in cgroup.conf; until then "
)
LOSS_IF_KILLED = "every signal costs the steps since the last checkpoint"
LOSS_IF_IGNORED = "only the STOP file and the deadline end a job without loss"


def observe(folder: Path, spec: dict[str, Any], name: str) -> None:
    """Wait inside the job for one signal, and record the time at which it came."""
    came: list[float] = []
    signal.signal(getattr(signal, f"SIG{name}"), lambda number, frame: came.append(time.time()))
    atomic.write_json(folder / f"{name}.ready.json", {"process": os.getpid()}, durable=False)
    deadline = time.time() + WAITING_SECONDS
    while not came and time.time() < deadline:
        time.sleep(0.02)
    atomic.write_json(folder / f"{name}.json", {"came": came[0] if came else None}, durable=False)


def evaluate(evidence: Evidence) -> CheckResult:
    """Check that both signals reached Python."""
    start = evidence.last(TrialJob.ARRAY, Element.SIGNALS)
    if start is None or any(start.text(f"{name}.exit") is None for name in SIGNALS):
        return evidence.missing_result(TrialJob.ARRAY, Element.SIGNALS, SIGNALS[0])
    if any(start.json(f"{name}.ready") is None for name in SIGNALS):
        return evidence.missing_result(TrialJob.ARRAY, Element.SIGNALS, SIGNALS[0])
    if refused := [start.text(f"{name}.refused") for name in SIGNALS if start.text(f"{name}.refused")]:
        advice = "signals cannot be sent from the nodes, so this was not checked; ask the cluster's support"
        return warn(None, f"scancel --signal: {refused[0]}", advice)
    arrivals = {name: (start.json(name) or {}).get("came") for name in SIGNALS}
    came = {name: float(seconds) for name, seconds in arrivals.items() if seconds is not None}
    if lost := [name for name in SIGNALS if name not in came]:
        killed = [name for name in lost if start.json(name) is None]
        how = f"; what srun started died of it (exit {start.text(f'{killed[0]}.exit')})" if killed else ""
        finding = f"{' and '.join(lost)} did not reach Python{how}"
        return fail(None, finding, ADVICE + (LOSS_IF_KILLED if killed else LOSS_IF_IGNORED))
    seconds = max(came[name] - float(start.text(f"{name}.sent") or came[name]) for name in SIGNALS)
    return ok(seconds, f"{' and '.join(SIGNALS)} reached the Python process")
