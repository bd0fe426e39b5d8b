"""Verdict that the batch script carries out after srun: come back, stop with a reason, or be done.

`scontrol show job -o A_T | python -m hpcddm.runtime.verdict MAP EXIT_CODE` prints decision|event|unit|changes|reason;
changes is the request of the next attempt: words of `scontrol update`, or of sbatch where the decision is to resubmit.
Two more arguments, the decision that Slurm refused to carry out and its words, change it to one that needs the
user; with 'update' for the decision they are a remark only, with 'wait' the reason why it waits no longer.
"""

import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.next_step import step
from hpcddm.pipeline.keys import REPORT, TABLE
from hpcddm.printing import MOST_OF_A_LINE, printable
from hpcddm.rundir import atomic, fresh, inside, sharing, training_states
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.attempt import RESERVE, VERDICT, follows, open_attempt, submission_of
from hpcddm.runtime.environment import Allocation, Ranks, current_allocation, slurm_owner
from hpcddm.runtime.failure_cause import Cause, cause_of, oom_kills, tails
from hpcddm.runtime.outcome import NEEDS_USER, HookEvent, Outcome
from hpcddm.runtime.records import AttemptRecord, read_record, records
from hpcddm.runtime.requests import raised, request_of
from hpcddm.runtime.spec import Spec, name_in, read_map, read_spec
from hpcddm.runtime.stopping import SLOT_ENDS

FRUITLESS = 3
"""Number of attempts in a row without progress that stops a unit."""
EARLY_SECONDS = 60
"""Seconds by which Slurm may send the signal before the time limit too early."""
SIGNAL_CODES = (138, 140, 143)
"""Exit codes of a process that USR1, USR2 or TERM ended before it could catch them."""
UPDATE = "update"
WAIT = "wait"
LAST_UNITS = (REPORT, TABLE)
"""Last unit of a run and last unit of a sweep; the report of one setting of a sweep is neither."""


@dataclass(frozen=True)
class Ending:
    """End of one execution of a job: the ranks' exit code, the state of the job in Slurm, its limits."""

    code: int
    job: dict[str, str]
    """The words of `scontrol show job`; empty when it did not answer."""
    restart: int
    ends: float | None
    lead_seconds: float
    is_withdrawn: bool = False
    """True where the journal has a cancellation of it."""
    cause: Cause | None = None
    """Reason why the ranks failed, where more is known than their exit code."""

    @property
    def is_requeued(self) -> bool:
        """True if Slurm has started the job anew by itself, as it does when a node is lost."""
        return int(self.job.get("Restarts", 0)) > self.restart

    @property
    def is_preempted(self) -> bool:
        """True if a job of a higher partition wants the nodes."""
        return self.job.get("PreemptTime", "None") != "None"

    @property
    def is_cancelled(self) -> bool:
        """True if it was cancelled; the time limit, a lost node and preemption leave other traces."""
        ending = self.job.get("JobState") in ("COMPLETING", "CANCELLED")
        return ending and self.job.get("Reason") == "None" and not self.is_preempted

    def is_at_the_slots_end(self, last: AttemptRecord) -> bool:
        """Tell if the attempt ended because its time was over."""
        slot_ends = self.ends is not None and time.time() > self.ends - self.lead_seconds - EARLY_SECONDS
        return slot_ends or last.ended.get("reason") == SLOT_ENDS or self.job.get("Reason") == "TimeLimit"

    def is_from_outside(self, last: AttemptRecord) -> bool:
        """Tell if the attempt was ended from outside; the end of the slot does not count: the next slot is as short."""
        if self.is_at_the_slots_end(last):
            return False
        return last.outcome == Outcome.STOPPED or self.code in SIGNAL_CODES or self.is_preempted


@dataclass(frozen=True)
class Verdict:
    """Decision for the batch script to carry out, and the reason for it."""

    decision: Outcome
    reason: str
    changes: str = ""
    """Resources that the next attempt requests instead, in the words of scontrol or sbatch."""
    memory_gb: int | None = None
    """Memory that the user is advised to request."""


def main() -> None:
    """Decide what follows the attempt that has just ended, record the verdict, print it for the script."""
    map_path, code = Path(sys.argv[1]), int(sys.argv[2])
    refused, message = sys.argv[3:5] if len(sys.argv) > 3 else ("", "")
    spec, run = read_spec(read_map(map_path)[int(os.environ["SLURM_ARRAY_TASK_ID"])])
    granted = current_allocation(int(os.environ.get("SLURM_NTASKS", "1")), spec.threads)
    ending = Ending(code, parse_job(sys.stdin.read()), granted.restart, granted.ends, spec.signal_lead_seconds)
    sharing.follow(run.root)
    inside.guard(run.root)
    owner, logs = slurm_owner(), run.logs(spec.key)
    executions = [record for record in records(logs) if submission_of(_owner(record)) == submission_of(owner)]
    tried = [record for record in executions if not follows(_owner(record), owner)]
    is_own = bool(tried) and _owner(tried[-1]) == owner
    if refused == UPDATE:
        _remark(tried[-1] if is_own else None, f"Slurm refuses to change what it asks for ({message})")
        return
    is_replaced = ending.is_requeued or len(tried) < len(executions)
    if not is_replaced and not is_own:
        tried.append(_late_record(logs, owner, granted))
        is_own = True
    home = RunDir(map_path.parent.parent)
    name = name_in(home, run, spec.key)
    if is_replaced:
        verdict = Verdict(Outcome.SUPERSEDED, "Slurm has started the job anew by itself, or will")
    elif refused == WAIT:
        verdict = Verdict(Outcome.BY_HAND, message)
    elif refused:
        reason = f"Slurm refuses to {refused} it ({message}): submit again; the site key is requeue"
        verdict = Verdict(Outcome.BY_HAND, reason)
    else:
        token = os.environ["SLURM_JOB_NAME"].rpartition("-")[2]
        is_withdrawn = Journal(home.journal).is_cancelled(token, name)
        ending = replace(ending, is_withdrawn=is_withdrawn, cause=_cause(tried[-1], map_path, granted))
        verdict = _verdict(spec, run, tried, ending, [place.stop for place in (run, home) if fresh.exists(place.stop)])
    if is_own:
        _record(tried[-1], ending, granted.started, verdict)
    reason = printable(verdict.reason, MOST_OF_A_LINE).replace("|", "/")
    print(verdict.decision, _event(verdict.decision, name), name, verdict.changes, reason, sep="|")


def _verdict(spec: Spec, run: RunDir, tried: list[AttemptRecord], ending: Ending, stops: list[Path]) -> Verdict:
    """Return the decision with the request of the next attempt, or with advice to the user where none follows."""
    reached, last, before = saved_images(run.unit(spec.key), tried), tried[-1], request_of(ending.job)
    decision, reason = decide_requeue(spec.requeue, tried, ending, reached, stops)
    is_memory = ending.cause is not None and ending.cause.is_memory
    if decision in (Outcome.REQUEUE, Outcome.RESUBMIT) and spec.escalate:
        is_time = ending.is_at_the_slots_end(last) and reached <= last.begun.get("images", reached)
        after, remark = raised(before, spec.escalate, ending.job, is_memory, is_time)
        reason = "; ".join(filter(None, (reason, remark)))
        if after.minutes != before.minutes:
            # Only operators may raise the time limit of a job that exists; anybody may submit one with another limit.
            decision = Outcome.RESUBMIT
        return Verdict(decision, reason, after.updates(before) if decision == Outcome.REQUEUE else after.flags())
    advised = before.advised_memory_gb() if is_memory and decision in NEEDS_USER else None
    if advised:
        reason = str(step("hpcddm", "retry", run.root, spec.key, "--resource", f"memory_gb={advised}", reason=reason))
    return Verdict(decision, reason, memory_gb=advised)


def _cause(last: AttemptRecord, map_path: Path, granted: Allocation) -> Cause | None:
    """Find out why the ranks failed, from what they, srun and the kernel left."""
    if last.outcome not in (None, Outcome.FAILED):
        return None
    srun = map_path.parent / f"{granted.job}.{granted.restart}.srun"
    output = tails(list(map_path.parent.glob(f"{granted.job}_*.out")), granted.started)
    return cause_of(last.folder, None, tails([srun], 0.0), output, oom_kills())


def _remark(record: AttemptRecord | None, remark: str) -> None:
    """Append a remark to the reason of a verdict that is recorded already."""
    if record and record.verdict:
        with suppress(OSError, UserError):
            atomic.write_json(record.folder / VERDICT, record.verdict | {"reason": f"{record.reason}; {remark}"})


def _owner(record: AttemptRecord) -> str:
    return str(record.owner.get("owner"))


def _late_record(logs: Path, owner: str, granted: Allocation) -> AttemptRecord:
    """Open and read the attempt of a job whose Python never came so far; on a full disk return an empty record."""
    try:
        attempt = open_attempt(logs, Ranks(0, 0, 1, 1, owner), granted.record())
    except (OSError, UserError):
        return AttemptRecord(0, logs, {}, {}, {}, {}, None)
    return read_record(attempt.number, attempt.folder)


def _record(record: AttemptRecord, ending: Ending, started: float, verdict: Verdict) -> None:
    content: dict[str, Any] = {"decision": verdict.decision, "reason": verdict.reason, "exit_code": ending.code}
    content |= {"memory_gb": verdict.memory_gb} if verdict.memory_gb else {}
    content |= {"outside": ending.is_from_outside(record), "started": started, "ended": time.time()}
    # On a full disk the decision counts, not its record.
    with suppress(OSError, UserError):
        inside.remove(record.folder / RESERVE)
        atomic.write_json(record.folder / VERDICT, content)


def decide_requeue(
    way: str, tried: list[AttemptRecord], ending: Ending, reached: int, stops: list[Path]
) -> tuple[Outcome, str]:
    """Decide what follows the last attempt, and return the decision and its reason.

    way: the site key requeue; tried: the attempts of this job, the one that has just ended last; reached: images of the
    newest training state; stops: the files that tell everybody to stop.
    """
    last = tried[-1]
    message = last.ended.get("reason") or f"the ranks ended with exit code {ending.code}"
    reason = ending.cause.reason if ending.cause else str(message)
    if last.ended_well:
        return Outcome.COMPLETE, ""
    if last.ended.get("final"):
        return Outcome.FAILED, reason
    if ending.is_withdrawn:
        return Outcome.CANCELLED, "by hpcddm cancel"
    if ending.is_cancelled:
        return Outcome.CANCELLED, "cancelled by scancel"
    if stops:
        return Outcome.STOPPED, f"{stops[0]} says so: remove it and submit again"
    if last.outcome == Outcome.WAITING:
        return Outcome.WAITING, reason
    if fruitless(tried, reached, ending.is_from_outside(last)) >= FRUITLESS:
        return Outcome.GAVE_UP, f"{FRUITLESS} attempts without progress; the last one: {reason}"
    if way == "none":
        return Outcome.BY_HAND, f"{reason}; this site lets no job come back: submit again"
    return (Outcome.REQUEUE if way == "scontrol" else Outcome.RESUBMIT), reason


def fruitless(tried: list[AttemptRecord], reached: int, outside: bool) -> int:
    """Count the attempts in a row, up to the last one, that made no progress that lasts.

    reached: images of the newest training state; outside: True where the last attempt was ended from outside, which the
    verdicts record of the earlier ones. An attempt that was ended from outside before its first step does not count.
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


def saved_images(folder: Path, tried: list[AttemptRecord]) -> int:
    """Return the images of the newest training state of these attempts; states of other settings do not count."""
    trajectories = {record.begun["trajectory"] for record in tried if "trajectory" in record.begun}
    states = folder / training_states.FOLDER
    saved = (state for own in trajectories for _, state in training_states.of_training(states, own))
    # One that an earlier job left, perhaps of a longer training, or torn, is no progress of these.
    numbers = {record.number for record in tried}
    return max((state["images"] for state in saved if state.get("attempt") in numbers), default=0)


def parse_job(text: str) -> dict[str, str]:
    """Parse the key=value words of `scontrol show job -o`."""
    pairs: Any = (word.partition("=") for word in text.split())
    return {key: value for key, equals, value in pairs if equals}


def _event(decision: Outcome, name: str) -> str:
    """Return the event for the user's hook: the end of the run, or a unit that stops for good; '' for none."""
    if decision == Outcome.COMPLETE:
        return HookEvent.COMPLETE if name in LAST_UNITS else ""
    return HookEvent.STOPPED if decision in NEEDS_USER else ""


if __name__ == "__main__":
    main()
