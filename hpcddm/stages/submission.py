"""The last job of a submission that the queue had no room for: submits the rest. It is no stage of the pipeline."""

import subprocess
import sys

from hpcddm import exit_codes
from hpcddm.config import Experiment
from hpcddm.errors import UserError
from hpcddm.runtime.unit import Result, Unit


def run(settings: Experiment, unit: Unit, num_units: int) -> Result:
    """Do what the command that was cut short would do now.

    Raises `UserError` when that fails; its words are in the log.
    """
    command = [sys.executable, "-P", "-m", "hpcddm.cli", "continue-submission", str(unit.run.root)]
    code = subprocess.run(command, check=False).returncode
    if code == exit_codes.SILENT:
        # Not final: the next attempt may find one that answers.
        raise RuntimeError("the scheduler does not answer, so the rest could not be submitted yet")
    if code:
        raise UserError(f"the rest could not be submitted (exit code {code}); see the log, then submit again by hand")
    return Result([], {})
