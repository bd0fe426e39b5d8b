"""What the batch script does when srun is over: come back, stop with a reason, or be done.

`scontrol show job -o A_T | python -m hpcddm.runtime.verdict MAP EXIT_CODE` prints decision|event|reason. Two more
arguments, the decision that Slurm refused to carry out and its words, change it to one that asks for the user's hand.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from hpcddm.rundir import atomic
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime import allocation, ranks
from hpcddm.runtime.attempt import VERDICT, find_attempt, open_attempt, submission_of
from hpcddm.runtime.records import Record, records
from hpcddm.runtime.spec import Spec, read_map, read_spec
from hpcddm.runtime.stopping import SLOT_ENDS

FRUITLESS = 3
"""So many attempts in a row without progress stop a unit."""
EARLY_SECONDS = 60
"""Slurm may send the signal before the time limit so much too early."""
SIGNAL_CODES = (138, 140, 143)
"""Exit codes of a process that USR1, USR2 or TERM ended before it could catch them."""
LAST_UNIT = "report/all"


def main() -> None:
    """Judge the attempt that has just ended, record the verdict, print it for the script."""
    spec, run = read_spec(read_map(Path(sys.argv[1]))[int(os.environ["SLURM_ARRAY_TASK_ID"])])
    granted = allocation.from_environment(int(os.environ.get("SLURM_NTASKS", "1")), spec.threads)
    owner, logs = ranks.slurm_owner(), run.logs(spec.key)
    # A job whose Python never came so far leaves a record, too.
    own = find_attempt(logs, owner) or open_attempt(logs, ranks.Ranks(0, 0, 1, 1, owner), granted.record())
    code, job = int(sys.argv[2]), parse_job(sys.stdin.read())
    tried = [one for one in records(logs) if submission_of(str(one.owner.get("owner"))) == submission_of(owner)]
    while tried[-1].number > own.number:
        job, _ = {"Restarts": str(granted.restart + 1)}, tried.pop()
    outside = is_from_outside(tried[-1], code, job, granted.ends, spec.signal_lead_seconds)
    decision, reason = judge(spec, run, tried, code, job, granted.restart, outside)
    if len(sys.argv) > 3:
        refused, words = sys.argv[3:5]
        decision, reason = "by hand", f"Slurm refuses to {refused} it ({words}): submit again; the site key is requeue"
    record = {"decision": decision, "reason": reason, "exit_code": code, "outside": outside}
    atomic.write_json(own.folder / VERDICT, record | {"started": granted.started, "ended": time.time()})
    print(decision, _event(decision, spec.key), reason.replace("|", "/"), sep="|")


def judge(
    spec: Spec, run: RunDir, tried: list[Record], code: int, job: dict[str, str], restart: int, outside: bool
) -> tuple[str, str]:
    """The decision and its reason.

    tried: the attempts of this job, the one that has just ended last; job: what Slurm says of it, empty if nothing.
    """
    last = tried[-1]
    reason = str(last.ended.get("reason") or f"the ranks ended with exit code {code}")
    if int(job.get("Restarts", 0)) > restart:
        return "superseded", "Slurm has started the job anew by itself, or will"
    if last.ended_well:
        return "complete", ""
    if last.ended.get("final"):
        return "failed", reason
    if is_cancelled(job):
        return "cancelled", "cancelled by scancel"
    if run.stop.exists():
        return "stopped", f"{run.stop.name} lies in the run's folder: remove it and submit again"
    if fruitless(tried, saved_images(run, spec.key), outside) >= FRUITLESS:
        return "gave up", f"{FRUITLESS} attempts without progress; the last one: {reason}"
    if spec.requeue == "none":
        return "by hand", f"{reason}; this site lets no job come back: submit again"
    return {"scontrol": "requeue"}.get(spec.requeue, spec.requeue), reason


def fruitless(tried: list[Record], reached: int, outside: bool) -> int:
    """How many attempts in a row, up to the last one, made no progress that lasts.

    reached: images of the newest training state. One that was ended from outside before its first step does not
    count; `outside` says that of the last one, the earlier ones have it in their verdicts.
    """
    count = 0
    for record in reversed(tried):
        continued_from = record.begun.get("images")
        if continued_from is not None:
            if reached > continued_from:
                return count
            reached = continued_from
        elif outside if record is tried[-1] else record.verdict.get("outside", True):
            continue
        count += 1
    return count


def is_from_outside(
    last: Record, code: int, job: dict[str, str], ends: float | None, lead_seconds: float
) -> bool:
    """Whether somebody ended the attempt; the end of the slot is no such thing, for the next one is as short."""
    reason, now = last.ended.get("reason"), time.time()
    slot_ends = ends is not None and now > ends - lead_seconds - EARLY_SECONDS
    if reason == SLOT_ENDS or slot_ends or job.get("Reason") == "TimeLimit":
        return False
    return last.outcome == "stopped" or code in SIGNAL_CODES or _is_preempted(job)


def is_cancelled(job: dict[str, str]) -> bool:
    """Whether the job ends because somebody wants it to; at the time limit Slurm says so, and in preemption, too."""
    ending = job.get("JobState") in ("COMPLETING", "CANCELLED")
    return ending and job.get("Reason") != "TimeLimit" and not _is_preempted(job)


def _is_preempted(job: dict[str, str]) -> bool:
    return job.get("PreemptTime", "None") != "None"


def saved_images(run: RunDir, key: str) -> int:
    """Images of the newest training state of a unit, 0 without any."""
    states = (run.unit(key) / "state").glob("images-*/state.json")
    return max((int(path.parent.name.removeprefix("images-")) for path in states), default=0)


def parse_job(text: str) -> dict[str, str]:
    """The key=value words of `scontrol show job -o`."""
    pairs: Any = (word.partition("=") for word in text.split())
    return {key: value for key, equals, value in pairs if equals}


def _event(decision: str, key: str) -> str:
    """What the user's hook is told, '' for nothing: the end of the run, or a unit that stops for good."""
    if decision == "complete":
        return "complete" if key == LAST_UNIT else ""
    return "stopped" if decision in ("failed", "gave up", "by hand") else ""


if __name__ == "__main__":
    main()
