"""Verdict after srun, which the batch script carries out: requeue, stop with a reason, or complete.

`scontrol show job -o ARRAY_TASK | python -m hpcddm.jobs.requeue_policy MAP EXIT_CODE` prints one line,
decision|event|unit|changes|reason. The changes are the request of the next attempt: arguments of `scontrol update`, or
of sbatch if the decision is to resubmit.
Further lines on the standard input list the nodes of the job's partition, see `nodes.NODE`.
Two more arguments are a decision that Slurm refused to carry out, and Slurm's message; the new decision then requires
the user. With 'update' instead of a decision they only add a remark; with 'wait' they give the reason to stop waiting.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable
from hpcddm.files import atomic, guarded_writes, nfs_reads
from hpcddm.jobs.attempt import RESERVE, VERDICT, is_later_attempt, submission_of
from hpcddm.jobs.attempt_records import AttemptRecord, read_record, read_records
from hpcddm.jobs.failure_cause import (
    Cause,
    find_cause,
    first_exit_code,
    oom_kills,
    outside_cause,
    read_tails,
)
from hpcddm.jobs.fruitless_attempts import FRUITLESS, count_fruitless, limit_unrecorded, saved_images
from hpcddm.jobs.job_end import JobEnd, parse_job
from hpcddm.jobs.job_environment import Allocation, Ranks, current_allocation, slurm_owner
from hpcddm.jobs.node_faults import MAX_FAULTS, avoid_nodes
from hpcddm.jobs.nodes import Node, hostnames, parse_nodes
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.outcome import NEEDS_USER, HookEvent, Outcome, Verdict
from hpcddm.jobs.persistent_errors import write_error
from hpcddm.jobs.resource_requests import parse_request, raise_request
from hpcddm.jobs.spec import Spec, journal_name, read_element_map, read_spec
from hpcddm.jobs.stopping import EXIT_CODE as ABANDONED
from hpcddm.runs import group_permissions
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import REPORT, TABLE

UPDATE = "update"
WAIT = "wait"
LAST_UNITS = (REPORT, TABLE)
"""Last unit of a run and of a sweep; the report of one setting of a sweep is neither."""


def main() -> None:
    """Decide what follows the attempt that has just ended, record the verdict, and print it for the batch script."""
    map_path, code = Path(sys.argv[1]), int(sys.argv[2])
    refused, message = sys.argv[3:5] if len(sys.argv) > 3 else ("", "")
    spec, run = read_spec(read_element_map(map_path)[int(os.environ["SLURM_ARRAY_TASK_ID"])])
    granted = current_allocation(int(os.environ.get("SLURM_NTASKS", "1")), spec.threads)
    ending = _ending(code, sys.stdin.read(), granted, spec)
    group_permissions.prepare_writes(run.root)
    owner, logs = slurm_owner(), run.logs(spec.key)
    executions = [record for record in read_records(logs) if submission_of(_owner(record)) == submission_of(owner)]
    tried = [record for record in executions if not is_later_attempt(_owner(record), owner)]
    is_own = bool(tried) and _owner(tried[-1]) == owner
    if refused == UPDATE:
        _remark(tried[-1] if is_own else None, f"Slurm refuses to change what it asks for{_quoted(message)}")
        return
    is_replaced = ending.is_requeued or len(tried) < len(executions)
    if not is_replaced and not is_own:
        tried.append(_late_record(logs, owner, granted))
        is_own = True
    home = RunDir(map_path.parent.parent)
    name = journal_name(home, run, spec.key)
    ending = _explained(ending, tried[-1], map_path, granted) if is_own else ending
    if is_replaced:
        verdict = _superseded(spec, tried, ending, ending.is_requeued and len(tried) == len(executions))
    elif refused == WAIT:
        verdict = Verdict(Outcome.BY_HAND, message)
    elif refused:
        reason = f"Slurm refuses to {refused} it{_quoted(message)}: submit again; the site key is requeue"
        verdict = Verdict(Outcome.BY_HAND, reason)
    else:
        is_withdrawn = Journal(home.journal).is_cancelled(os.environ["SLURM_JOB_NAME"].rpartition("-")[2], name)
        ending = replace(ending, is_withdrawn=is_withdrawn)
        verdict = _verdict(spec, run, tried, ending, [one.stop for one in (run, home) if nfs_reads.exists(one.stop)])
    if is_own:
        refusal = _record(tried[-1], ending, granted.started, verdict)
        verdict = limit_unrecorded(verdict, refusal, logs, str(ending.job.get("Comment", "")))
    reason = printable(verdict.reason, MAX_LINE_CHARACTERS).replace("|", "/")
    print(verdict.decision, _event(verdict.decision, name), name, verdict.changes, reason, sep="|")


def _ending(code: int, text: str, granted: Allocation, spec: Spec) -> JobEnd:
    """Create the end of an execution from its exit code and from Slurm's text about job and nodes."""
    end = JobEnd(code, parse_job(text), granted.restart, granted.ends, spec.signal_lead_seconds, granted.nodes)
    return replace(end, nodes=tuple(parse_nodes(text)))


def _explained(ending: JobEnd, last: AttemptRecord, map_path: Path, granted: Allocation) -> JobEnd:
    """Add the cause of the end and the faulty nodes."""
    srun = read_tails([map_path.parent / f"{granted.job}.{granted.restart}.srun"], 0.0)
    cause = _cause(last, srun, map_path, granted, ending.nodes)
    faulty = [name for listed in (cause.nodes if cause else ()) for name in _names(listed)]
    # srun returns the largest exit code; that of the rank that left first says why the others were ended.
    first = first_exit_code(srun)
    code = first if first is not None and ABANDONED in (first, ending.code) else ending.code
    return replace(ending, code=code, cause=cause, faulty=tuple(dict.fromkeys(faulty)))


def _names(listed: str) -> list[str]:
    """Expand a Slurm list of nodes; return the list as one name if scontrol does not answer."""
    with suppress(OSError, subprocess.SubprocessError):
        return hostnames(listed)
    return [listed]


def _superseded(spec: Spec, tried: list[AttemptRecord], ending: JobEnd, is_newest: bool) -> Verdict:
    """Leave the unit to the next execution, which avoids the faulty nodes if it has not started yet."""
    reason = "Slurm has started the job again by itself, or will"
    if ending.cause is None or not ending.faulty:
        return Verdict(Outcome.SUPERSEDED, reason)
    changes, remark = avoid_nodes(tried, ending, Outcome.REQUEUE, spec.max_excluded_nodes, 0) if is_newest else ([], "")
    reason = "; ".join(filter(None, (ending.cause.reason, reason, remark)))
    return Verdict(Outcome.SUPERSEDED, reason, " ".join(changes))


def _verdict(spec: Spec, run: RunDir, tried: list[AttemptRecord], ending: JobEnd, stops: list[Path]) -> Verdict:
    """Return the decision with the request of the next attempt, or with advice to the user if no attempt follows."""
    reached, last, before = saved_images(run.unit(spec.key), tried), tried[-1], parse_request(ending.job)
    decision, reason = decide_requeue(spec.requeue, tried, ending, reached, stops)
    is_memory = ending.cause is not None and ending.cause.is_memory
    if decision in (Outcome.REQUEUE, Outcome.RESUBMIT):
        requested, remarks = [], [reason]
        if spec.raise_on_retry:
            is_time = ending.is_out_of_time(last) and reached <= last.begun.get("images", reached)
            after, remark = raise_request(before, spec.raise_on_retry, ending.job, is_memory, is_time)
            if after.minutes != before.minutes:
                # Only operators can raise the time limit of an existing job; users can submit a job with another limit.
                decision = Outcome.RESUBMIT
            requested.append(after.updates(before) if decision == Outcome.REQUEUE else after.flags())
            remarks.append(remark)
        faults = count_fruitless(tried, reached, ending)[1]
        changes, remark = avoid_nodes(tried, ending, decision, spec.max_excluded_nodes, faults)
        remarks.append(remark)
        return Verdict(decision, "; ".join(filter(None, remarks)), " ".join(filter(None, (*requested, *changes))))
    advised = before.advised_memory_gb() if is_memory and decision in NEEDS_USER else None
    if advised:
        reason = str(step("hpcddm", "retry", run.root, spec.key, "--resource", f"memory_gb={advised}", reason=reason))
    elif decision == Outcome.GAVE_UP and before.minutes and ending.is_stopped_by_limit(last):
        reason += f", at its limit of {before.minutes} minutes"
        reason += "" if spec.is_collective else "; such a unit starts again each time"
        more = ("--resource", f"minutes={2 * before.minutes}")
        reason = str(step("hpcddm", "retry", run.root, spec.key, *more, reason=reason))
    return Verdict(decision, reason, memory_gb=advised)


def _cause(last: AttemptRecord, srun: str, map_path: Path, granted: Allocation, nodes: Sequence[Node]) -> Cause | None:
    """Find the cause of the failure from the records of ranks, srun, kernel and controller."""
    if last.outcome == Outcome.STOPPED:
        return outside_cause(srun)
    if last.outcome not in (None, Outcome.FAILED):
        return None
    output = read_tails(list(map_path.parent.glob(f"{granted.job}_*.out")), granted.started)
    own = _names(granted.node_list)
    down = [node.name for node in nodes if node.is_down and node.name in own]
    return find_cause(last.folder, None, srun, output, oom_kills(), down, write_error(last.folder))


def _remark(record: AttemptRecord | None, remark: str) -> None:
    """Append a remark to the reason of a recorded verdict."""
    if record and record.verdict:
        with suppress(OSError, UserError):
            atomic.write_json(record.folder / VERDICT, record.verdict | {"reason": f"{record.reason}; {remark}"})


def _quoted(message: str) -> str:
    """Return Slurm's message in parentheses; empty if it gave none."""
    return f" ({message.strip()})" if message.strip() else ""


def _owner(record: AttemptRecord) -> str:
    return str(record.owner.get("owner"))


def _late_record(logs: Path, owner: str, granted: Allocation) -> AttemptRecord:
    """Open an attempt for a job whose ranks never opened one; on an error return an empty record with it."""
    try:
        attempt = open_attempt(logs, Ranks(0, 0, 1, 1, owner), granted.record())
    except (OSError, UserError) as error:
        return AttemptRecord(0, logs, file_errors=(str(error),))
    return read_record(attempt.number, attempt.folder)


def _record(record: AttemptRecord, ending: JobEnd, started: float, verdict: Verdict) -> str:
    """Record the verdict; return the error if that fails, else ''."""
    if not record.number:
        return record.file_errors[0]
    content: dict[str, Any] = {"decision": verdict.decision, "reason": verdict.reason, "exit_code": ending.code}
    content |= {"memory_gb": verdict.memory_gb} if verdict.memory_gb else {}
    content |= {**ending.cause_fields(record), "nodes": list(ending.faulty), "started": started, "ended": time.time()}
    try:
        guarded_writes.remove(record.folder / RESERVE)
        atomic.write_json(record.folder / VERDICT, content)
    except (OSError, UserError) as error:
        return str(error)
    return ""


def decide_requeue(
    way: str, attempts: list[AttemptRecord], ending: JobEnd, reached: int, stops: list[Path]
) -> tuple[Outcome, str]:
    """Decide what follows the last attempt.

    Args:
        way: The site key `requeue`.
        attempts: Records of this job's attempts; the last one has just ended.
        ending: End of the last attempt.
        reached: Number of images at the newest training state.
        stops: Existing STOP files of the run and the sweep.

    Returns:
        The decision and its reason.
    """
    last = attempts[-1]
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
    if ending.cause and ending.cause.is_final and not ending.is_preempted:
        return Outcome.FAILED, reason
    if last.outcome == Outcome.WAITING:
        return Outcome.WAITING, reason
    own, by_slurm = count_fruitless(attempts, reached, ending)
    if own >= FRUITLESS:
        return Outcome.GAVE_UP, f"{FRUITLESS} attempts without progress; the last one: {reason}"
    if by_slurm >= MAX_FAULTS:
        text = f"{by_slurm} attempts without progress, ended by nodes or by Slurm and not by the unit"
        return Outcome.GAVE_UP, f"{text}; the last one: {reason}"
    if way == "none":
        return Outcome.BY_HAND, f"{reason}; this site lets no job come back: submit again"
    return (Outcome.REQUEUE if way == "scontrol" else Outcome.RESUBMIT), reason


def _event(decision: Outcome, name: str) -> str:
    """Return the event for the user's hook: the run is complete, or a unit needs the user; '' for no event."""
    if decision == Outcome.COMPLETE:
        return HookEvent.COMPLETE if name in LAST_UNITS else ""
    return HookEvent.STOPPED if decision in NEEDS_USER else ""


if __name__ == "__main__":
    main()
