"""Options of scontrol or sbatch that let the next attempt wait and avoid nodes that ended earlier attempts."""

import subprocess
import time
from contextlib import suppress

from hpcddm.jobs.attempt_records import AttemptRecord
from hpcddm.jobs.job_end import JobEnd
from hpcddm.jobs.nodes import hostnames, nodes_to_exclude
from hpcddm.jobs.outcome import Outcome
from hpcddm.runs.journal import NODE_LOSS_SECONDS

MAX_FAULTS = 12
"""Number of attempts in a row that ended without progress because of nodes or Slurm, after which a unit gives up."""
FIRST_WAIT, MAX_WAIT_SECONDS = 15, 900
"""Seconds of the first wait, after the second such end in a row, and of the longest wait; each wait doubles."""


def wait_seconds(faults: int) -> int:
    """Return the seconds that the next attempt waits.

    Args:
        faults: Number of attempts in a row that nodes or Slurm ended without progress.

    Examples:
        >>> [wait_seconds(faults) for faults in (1, 2, 3, 12)]
        [0, 15, 30, 900]
    """
    return 0 if faults < 2 else min(FIRST_WAIT * 2 ** (faults - 2), MAX_WAIT_SECONDS)


def avoid_nodes(
    tried: list[AttemptRecord], ending: JobEnd, decision: Outcome, most: int, faults: int
) -> tuple[list[str], str]:
    """Return the options with which the next attempt avoids faulty nodes and waits.

    Args:
        tried: Records of the job's attempts, the last one newest.
        ending: End of the last attempt.
        decision: Decision of the batch script; RESUBMIT returns options of sbatch, otherwise of scontrol.
        most: Maximum number of faulty nodes to avoid.
        faults: Number of attempts in a row that nodes or Slurm ended without progress.

    Returns:
        The options, and a remark for the user.
    """
    is_resubmit = decision == Outcome.RESUBMIT
    changes, remarks = [], []
    with suppress(OSError, subprocess.SubprocessError):
        before = hostnames(ending.job.get("ExcNodeList", ""))
        after = _excluded(before, tried, ending, most)
        if (is_resubmit and after) or after != before:
            changes.append(f"--exclude={','.join(after)}" if is_resubmit else f"ExcNodeList={','.join(after)}")
        away = [name for name in after if name in ending.faulty]
        remarks += [f"the next attempt avoids {', '.join(away)}"] if away else []
    seconds = wait_seconds(faults) if ending.is_by_slurm(tried[-1]) else 0
    if seconds:
        changes.append(f"--begin=now+{seconds}" if is_resubmit else f"StartTime=now+{seconds}")
        remarks.append(f"it waits {seconds} s")
    return changes, "; ".join(remarks)


def _excluded(before: list[str], tried: list[AttemptRecord], ending: JobEnd, most: int) -> list[str]:
    """Return the nodes that the next attempt excludes; a faulty node counts for a day, then it may be repaired."""
    since = time.time() - NODE_LOSS_SECONDS
    recent = [name for record in tried[:-1] if (record.stopped or 0.0) > since for name in record.faulty_nodes]
    every = {name for record in tried[:-1] for name in record.faulty_nodes} | {*ending.faulty}
    if not every or not ending.nodes:
        return before
    own = [name for name in before if name not in every]
    return nodes_to_exclude(own, [*recent, *ending.faulty], list(ending.nodes), most, ending.num_nodes)
