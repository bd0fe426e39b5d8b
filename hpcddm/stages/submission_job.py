"""Last job of a submission that did not fit in the queue; it submits the rest and is not a stage of the pipeline."""

import subprocess
import sys

from hpcddm.config.experiment import Experiment
from hpcddm.errors import ExitCode, require
from hpcddm.jobs.unit import Result, Unit


def run(experiment: Experiment, unit: Unit) -> Result:
    """Continue the submission that was cut short.

    Raises `UserError` when that fails, with the cause in the log, and `RuntimeError` when it is worth another attempt.
    """
    command = [sys.executable, "-P", "-m", "hpcddm.cli", "continue-submission", str(unit.run.root)]
    code = subprocess.run(command, check=False).returncode
    if code in (ExitCode.SCHEDULER_UNREACHABLE, ExitCode.HELD_OR_ABANDONED):
        # Not final: the next attempt may find a scheduler that answers, and the run free.
        is_silent = code == ExitCode.SCHEDULER_UNREACHABLE
        reason = "the scheduler does not answer" if is_silent else "another command is at work here"
        raise RuntimeError(f"{reason}, so the rest could not be submitted yet")
    require(code == 0, f"the rest could not be submitted (exit code {code}); see the log, then submit again by hand")
    return Result([], {})
