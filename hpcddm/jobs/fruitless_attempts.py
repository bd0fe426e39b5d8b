"""Attempts in a row without progress, and attempts in a row without a record, after which a unit gives up."""

import re
from dataclasses import replace
from pathlib import Path

from hpcddm.jobs.attempt_records import AttemptRecord
from hpcddm.jobs.job_end import JobEnd
from hpcddm.jobs.node_faults import wait_seconds
from hpcddm.jobs.outcome import Outcome, Verdict
from hpcddm.runs import training_states

FRUITLESS = 3
"""Number of attempts in a row without progress after which a unit gives up."""
UNRECORDED = re.compile("(?P<own>.*?),?unrecorded-attempts:(?P<count>[0-9]{1,3})")
"""Pattern of a job's comment: the user's own, and the number of the last attempts in a row without a record."""


def count_fruitless(tried: list[AttemptRecord], reached: int, ending: JobEnd) -> tuple[int, int]:
    """Count the attempts in a row, up to the last one, that ended without a new training state.

    An attempt does not count if something outside stopped it before its first step, or if Slurm requeued the job.

    Args:
        tried: Records of this job's attempts, the last one newest.
        reached: Number of images at the newest training state.
        ending: End of the last attempt.

    Returns:
        The number of attempts that failed themselves, and the number that a node, srun or the controller ended.
    """
    own = by_slurm = 0
    for record in reversed(tried):
        if (continued_from := record.begun.get("images")) is not None:
            if reached > continued_from:
                break
            reached = continued_from
        is_last = record is tried[-1]
        sides = ending.cause_fields(record) if is_last else record.verdict
        if sides.get("by_slurm"):
            by_slurm += 1
        elif not is_last and record.decision in (None, Outcome.SUPERSEDED):
            continue
        elif continued_from is not None or not sides.get("outside"):
            own += 1
    return own, by_slurm


def saved_images(folder: Path, tried: list[AttemptRecord]) -> int:
    """Return the number of images at the newest training state from some attempts; 0 without a state.

    Args:
        folder: Folder of the unit.
        tried: Records of the attempts; states from other attempts or other settings do not count.
    """
    trajectories = {record.begun["trajectory"] for record in tried if "trajectory" in record.begun}
    states = folder / training_states.FOLDER
    saved = (state for own in trajectories for _, state in training_states.list_states(states, own))
    # A state of an earlier job (perhaps of a longer training, or damaged) is not progress of these attempts.
    numbers = {record.number for record in tried}
    return max((state["images"] for state in saved if state.get("attempt") in numbers), default=0)


def limit_unrecorded(verdict: Verdict, refusal: str, logs: Path, comment: str) -> Verdict:
    """Let a unit whose attempts cannot be recorded wait longer each time, and give up after `FRUITLESS` in a row.

    The comment of the job counts these attempts, because the run cannot.

    Args:
        verdict: Decision on the last attempt.
        refusal: Error on recording it; '' if it is recorded.
        logs: Folder of the unit's logs.
        comment: Comment of the job.
    """
    match = UNRECORDED.fullmatch(comment)
    own, before = (match["own"], int(match["count"])) if match else (comment.removeprefix("(null)"), 0)
    # The batch script splits words, and fields at bars.
    own = re.sub("[^A-Za-z0-9_.,:=@/+-]", "", own)
    if verdict.decision not in (Outcome.REQUEUE, Outcome.RESUBMIT) or not (refusal or before):
        return verdict
    is_resubmit = verdict.decision == Outcome.RESUBMIT
    if not refusal:
        # A resubmitted job has no comment of the earlier one.
        return verdict if is_resubmit else replace(verdict, changes=f"{verdict.changes} Comment={own}".strip())
    if (count := before + 1) >= FRUITLESS:
        text = f"{count} attempts in a row could leave no record below {logs} ({refusal})"
        reason = f"{text}; make that folder writable, or room on its disk; the last one: {verdict.reason}"
        return Verdict(Outcome.GAVE_UP, reason)
    written = f"{own},unrecorded-attempts:{count}".removeprefix(",")
    changes, reason = [f"--comment={written}" if is_resubmit else f"Comment={written}"], verdict.reason
    if "now+" not in verdict.changes:
        seconds = wait_seconds(count + 1)
        changes.append(f"--begin=now+{seconds}" if is_resubmit else f"StartTime=now+{seconds}")
        reason += f"; it waits {seconds} s"
    reason += f"; it could leave no record ({refusal})"
    return replace(verdict, changes=" ".join([*verdict.changes.split(), *changes]), reason=reason)
