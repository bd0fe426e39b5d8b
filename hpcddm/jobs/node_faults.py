"""Words with which the next attempt avoids the nodes that ended the ones before, and waits."""

import subprocess
import time
from contextlib import suppress

from hpcddm.jobs.ending import Ending
from hpcddm.jobs.nodes import avoided, hostnames
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.records import AttemptRecord
from hpcddm.runs.journal import LOST_SECONDS

MOST_FAULTS = 12
"""Number of attempts in a row without progress, ended by nodes or by Slurm and by no rank, that stops a unit."""
FIRST_WAIT, LONGEST_WAIT = 15, 900
"""Seconds that an attempt waits after the second such end in a row, and at most; each wait is twice the one before."""


def wait_seconds(faults: int) -> int:
    """Return the seconds that the next attempt waits after so many such ends in a row; the first costs none."""
    return 0 if faults < 2 else min(FIRST_WAIT * 2 ** (faults - 2), LONGEST_WAIT)


def steps_aside(
    tried: list[AttemptRecord], ending: Ending, decision: Outcome, most: int, faults: int
) -> tuple[list[str], str]:
    """Return the words of scontrol or sbatch with which the next attempt avoids nodes at fault and waits, and a remark.

    most: largest number of nodes at fault that are avoided; faults: number of attempts in a row that Slurm ended.
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


def _excluded(before: list[str], tried: list[AttemptRecord], ending: Ending, most: int) -> list[str]:
    """Return the nodes that the next attempt excludes; those at fault for a day, as they may have been mended then."""
    since = time.time() - LOST_SECONDS
    recent = [name for record in tried[:-1] if (record.stopped or 0.0) > since for name in record.faulty]
    every = {name for record in tried[:-1] for name in record.faulty} | {*ending.faulty}
    if not every or not ending.nodes:
        return before
    own = [name for name in before if name not in every]
    return avoided(own, [*recent, *ending.faulty], list(ending.nodes), most, ending.num_nodes)
