"""Verdict that the batch script carries out after srun: come back, stop with a reason, or be done.

`scontrol show job -o A_T | python -m hpcddm.jobs.requeue_policy MAP EXIT_CODE` prints a line of
decision|event|unit|changes|reason. Changes is the request of the next attempt: words of `scontrol update`, or of sbatch
where the decision is to resubmit.
Further lines on the input hold the nodes of the job's partition, see `nodes.NODE`.
Two more arguments, the decision that Slurm refused to carry out and its words, change it to one that needs the
user; with 'update' for the decision they are a remark only, with 'wait' the reason why it waits no longer.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import MOST_OF_A_LINE, printable
from hpcddm.files import atomic, fresh, inside
from hpcddm.jobs.attempt import RESERVE, VERDICT, follows, open_attempt, submission_of
from hpcddm.jobs.ending import Ending, parse_job
from hpcddm.jobs.environment import Allocation, Ranks, current_allocation, slurm_owner
from hpcddm.jobs.failure_cause import Cause, cause_of, oom_kills, outside_cause, tails
from hpcddm.jobs.node_faults import MOST_FAULTS, steps_aside
from hpcddm.jobs.nodes import Node, hostnames, read_nodes
from hpcddm.jobs.outcome import NEEDS_USER, HookEvent, Outcome
from hpcddm.jobs.records import AttemptRecord, read_record, records
from hpcddm.jobs.resource_requests import raised, request_of
from hpcddm.jobs.spec import Spec, name_in, read_map, read_spec
from hpcddm.runs import sharing, training_states
from hpcddm.runs.journal import Journal
from hpcddm.runs.layout import RunDir
from hpcddm.runs.unit_keys import REPORT, TABLE

FRUITLESS = 3
"""Number of attempts in a row without progress that stops a unit."""
UPDATE = "update"
WAIT = "wait"
LAST_UNITS = (REPORT, TABLE)
"""Last unit of a run and last unit of a sweep; the report of one setting of a sweep is neither."""


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
    ending = _ending(code, sys.stdin.read(), granted, spec)
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
    ending = _explained(ending, tried[-1], map_path, granted) if is_own else ending
    if is_replaced:
        verdict = _superseded(spec, tried, ending, ending.is_requeued and len(tried) == len(executions))
    elif refused == WAIT:
        verdict = Verdict(Outcome.BY_HAND, message)
    elif refused:
        reason = f"Slurm refuses to {refused} it ({message}): submit again; the site key is requeue"
        verdict = Verdict(Outcome.BY_HAND, reason)
    else:
        is_withdrawn = Journal(home.journal).is_cancelled(os.environ["SLURM_JOB_NAME"].rpartition("-")[2], name)
        ending = replace(ending, is_withdrawn=is_withdrawn)
        verdict = _verdict(spec, run, tried, ending, [place.stop for place in (run, home) if fresh.exists(place.stop)])
    if is_own:
        _record(tried[-1], ending, granted.started, verdict)
    reason = printable(verdict.reason, MOST_OF_A_LINE).replace("|", "/")
    print(verdict.decision, _event(verdict.decision, name), name, verdict.changes, reason, sep="|")


def _ending(code: int, text: str, granted: Allocation, spec: Spec) -> Ending:
    """Read the end of an execution from its exit code and from what Slurm tells of job and nodes."""
    nodes = tuple(read_nodes(text))
    return Ending(
        code, parse_job(text), granted.restart, granted.ends, spec.signal_lead_seconds, granted.nodes, nodes=nodes
    )


def _explained(ending: Ending, last: AttemptRecord, map_path: Path, granted: Allocation) -> Ending:
    """Add the cause of the end and the nodes at fault."""
    cause = _cause(last, map_path, granted, ending.nodes)
    faulty = [name for listed in (cause.nodes if cause else ()) for name in _names(listed)]
    return replace(ending, cause=cause, faulty=tuple(dict.fromkeys(faulty)))


def _names(listed: str) -> list[str]:
    """Return the single nodes of a list of Slurm; the list itself where nobody expands it."""
    try:
        return hostnames(listed)
    except (OSError, subprocess.SubprocessError):
        return [listed]


def _superseded(spec: Spec, tried: list[AttemptRecord], ending: Ending, is_newest: bool) -> Verdict:
    """Leave the unit to the execution that follows; where that is still to start, let it avoid the nodes at fault."""
    reason = "Slurm has started the job again by itself, or will"
    if ending.cause is None or not ending.faulty:
        return Verdict(Outcome.SUPERSEDED, reason)
    changes, remark = steps_aside(tried, ending, Outcome.REQUEUE, spec.max_excluded_nodes, 0) if is_newest else ([], "")
    return Verdict(
        Outcome.SUPERSEDED, "; ".join(filter(None, (ending.cause.reason, reason, remark))), " ".join(changes)
    )


def _verdict(spec: Spec, run: RunDir, tried: list[AttemptRecord], ending: Ending, stops: list[Path]) -> Verdict:
    """Return the decision with the request of the next attempt, or with advice to the user where none follows."""
    reached, last, before = saved_images(run.unit(spec.key), tried), tried[-1], request_of(ending.job)
    decision, reason = decide_requeue(spec.requeue, tried, ending, reached, stops)
    is_memory = ending.cause is not None and ending.cause.is_memory
    if decision in (Outcome.REQUEUE, Outcome.RESUBMIT):
        requested, remarks = [], [reason]
        if spec.escalate:
            is_time = ending.is_at_the_slots_end(last) and reached <= last.begun.get("images", reached)
            after, remark = raised(before, spec.escalate, ending.job, is_memory, is_time)
            if after.minutes != before.minutes:
                # Only operators may raise the time limit of a job that exists; anybody may submit one with another one.
                decision = Outcome.RESUBMIT
            requested.append(after.updates(before) if decision == Outcome.REQUEUE else after.flags())
            remarks.append(remark)
        changes, remark = steps_aside(
            tried, ending, decision, spec.max_excluded_nodes, fruitless(tried, reached, ending)[1]
        )
        remarks.append(remark)
        return Verdict(decision, "; ".join(filter(None, remarks)), " ".join(filter(None, (*requested, *changes))))
    advised = before.advised_memory_gb() if is_memory and decision in NEEDS_USER else None
    if advised:
        reason = str(step("hpcddm", "retry", run.root, spec.key, "--resource", f"memory_gb={advised}", reason=reason))
    return Verdict(decision, reason, memory_gb=advised)


def _cause(last: AttemptRecord, map_path: Path, granted: Allocation, nodes: Sequence[Node]) -> Cause | None:
    """Find out why the ranks failed, from what they, srun, the kernel and the controller left."""
    srun = tails([map_path.parent / f"{granted.job}.{granted.restart}.srun"], 0.0)
    if last.outcome == Outcome.STOPPED:
        return outside_cause(srun)
    if last.outcome not in (None, Outcome.FAILED):
        return None
    output = tails(list(map_path.parent.glob(f"{granted.job}_*.out")), granted.started)
    own = _names(granted.node_list)
    down = [node.name for node in nodes if node.is_down and node.name in own]
    return cause_of(last.folder, None, srun, output, oom_kills(), down)


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
    content |= {**ending.sides(record), "nodes": list(ending.faulty), "started": started, "ended": time.time()}
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
    own, by_slurm = fruitless(tried, reached, ending)
    if own >= FRUITLESS:
        return Outcome.GAVE_UP, f"{FRUITLESS} attempts without progress; the last one: {reason}"
    if by_slurm >= MOST_FAULTS:
        text = f"{by_slurm} attempts without progress, ended by nodes or by Slurm and not by the unit"
        return Outcome.GAVE_UP, f"{text}; the last one: {reason}"
    if way == "none":
        return Outcome.BY_HAND, f"{reason}; this site lets no job come back: submit again"
    return (Outcome.REQUEUE if way == "scontrol" else Outcome.RESUBMIT), reason


def fruitless(tried: list[AttemptRecord], reached: int, ending: Ending) -> tuple[int, int]:
    """Count the attempts in a row, up to the last one, that made no progress that lasts: its own, and those of Slurm.

    reached: images of the newest training state; ending: that of the last attempt, as the verdicts record those of the
    earlier ones. Attempts that a node, srun or the controller ended are Slurm's. An attempt that was stopped from
    outside before its first step counts as neither, nor does one after which Slurm started the job again by itself.
    """
    own = by_slurm = 0
    for record in reversed(tried):
        continued_from = record.begun.get("images")
        if continued_from is not None:
            if reached > continued_from:
                break
            reached = continued_from
        is_last = record is tried[-1]
        sides = ending.sides(record) if is_last else record.verdict
        if sides.get("by_slurm"):
            by_slurm += 1
        elif not is_last and record.decision in (None, Outcome.SUPERSEDED):
            continue
        elif continued_from is not None or not sides.get("outside"):
            own += 1
    return own, by_slurm


def saved_images(folder: Path, tried: list[AttemptRecord]) -> int:
    """Return the images of the newest training state of these attempts; states of other settings do not count."""
    trajectories = {record.begun["trajectory"] for record in tried if "trajectory" in record.begun}
    states = folder / training_states.FOLDER
    saved = (state for own in trajectories for _, state in training_states.of_training(states, own))
    # One that an earlier job left, perhaps of a longer training, or torn, is no progress of these.
    numbers = {record.number for record in tried}
    return max((state["images"] for state in saved if state.get("attempt") in numbers), default=0)


def _event(decision: Outcome, name: str) -> str:
    """Return the event for the user's hook: the end of the run, or a unit that stops for good; '' for none."""
    if decision == Outcome.COMPLETE:
        return HookEvent.COMPLETE if name in LAST_UNITS else ""
    return HookEvent.STOPPED if decision in NEEDS_USER else ""


if __name__ == "__main__":
    main()
