"""The hidden verb continue-submission, which the last job of a submission without room runs."""

import os
from pathlib import Path

from hpcddm import exit_codes
from hpcddm.errors import UserError
from hpcddm.launch import continuation
from hpcddm.printing import echo
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.lease import HeldElsewhere


def continue_submission(root: Path, trust_run: bool) -> int:
    """Submit what is left of a run or of a sweep; return the exit code, `LEAVES` where another command is at work."""
    try:
        return _continue(root, trust_run)
    except HeldElsewhere as held:
        echo(f"error: {held}", err=True)
        return exit_codes.LEAVES


def _continue(root: Path, trust_run: bool) -> int:
    home = RunDir(root.resolve())
    rest = continuation.read(home)
    if rest is None:
        echo("nothing is left to submit: it was cancelled, or somebody has submitted it")
        return 0
    # Experiments, sites and the template are looked for where the command was typed.
    try:
        os.chdir(rest.folder)
    except OSError as error:
        if rest.sweep is not None:
            advice = "but the sweep's files are looked for there; repeat hpcddm sweep by hand"
            raise UserError(f"{rest.folder}: not to be seen from here ({error.strerror}), {advice}") from error
        echo(f"note: {rest.folder} is not to be seen from here ({error.strerror})")
    if rest.sweep is not None:
        from hpcddm.commands.sweep import sweep

        return sweep(
            rest.sweep, str(home.site(rest.site)), home.root, False, False, rest.is_live, rest, trust_run=trust_run
        )
    from hpcddm.commands.retry import continue_run

    return continue_run(home, rest, trust_run)
