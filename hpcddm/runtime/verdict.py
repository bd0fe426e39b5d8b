"""What the batch script does when srun is over: come back, stop with a reason, or be done.

`scontrol show job -o A_T | python -m hpcddm.runtime.verdict MAP EXIT_CODE` prints decision|event|unit|reason. Two more
arguments, the decision that Slurm refused to carry out and its words, change it to one that asks for the user's hand.
"""

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcddm.rundir import atomic
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime import allocation, ranks
from hpcddm.runtime.attempt import VERDICT, find_attempt, open_attempt, submission_of
from hpcddm.runtime.records import Record, records
from hpcddm.runtime.spec import read_map, read_spec
from hpcddm.runtime.stopping import SLOT_ENDS

FRUITLESS = 3
"""So many attempts in a row without progress stop a unit."""
EARLY_SECONDS = 60
"""Slurm may send the signal before the time limit so much too early."""
SIGNAL_CODES = (138, 140, 143)
"""Exit codes of a process that USR1, USR2 or TERM ended before it could catch them."""
LAST_UNIT = "report/all"


@dataclass(frozen=True)
class Ending:
    """How one execution of a job ended: the ranks' exit code, what Slurm says of the job ({} if nothing), its limits."""

    code: int
    job: dict[str, str]
    restart: int
    ends: float | None
    lead_seconds: float

    @property
    def is_requeued(self) -> bool:
        """Whether Slurm has started the job anew by itself, as it does when a node is lost."""
        return int(self.job.get("Restarts", 0)) > self.restart

    @property
    def is_preempted(self) -> bool:
        """Whether a job of a higher partition wants the nodes."""
        return self.job.get("PreemptTime", "None") != "None"

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody wants it to end; at the time limit and in preemption a job looks the same but for these."""
        ending = self.job.get("JobState") in ("COMPLETING", "CANCELLED")
        return ending and self.job.get("Reason") != "TimeLimit" and not self.is_preempted

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
