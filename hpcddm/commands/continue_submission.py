"""The hidden verb continue-submission, which the last job of a submission without room runs."""

from pathlib import Path

import click

from hpcddm.commands.options import RUN, TRUST
from hpcddm.commands.submit import submit_missing
from hpcddm.commands.trusted_settings import trusted_site_and_template
from hpcddm.errors import ExitCode, require
from hpcddm.errors.printing import echo
from hpcddm.launch import continuation
from hpcddm.runs.lease import HeldElsewhere
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import is_sweep, stored_experiment, with_absolute_paths


@click.command("continue-submission", hidden=True)
@RUN
@TRUST
def continue_submission(run: RunDir, trust_run: bool) -> int:
    """Submit the units that did not fit in the queue; the last job of such a submission runs this."""
    try:
        return _continue(run, trust_run)
    except HeldElsewhere as held:
        echo(f"error: {held}", err=True)
        return ExitCode.HELD_OR_ABANDONED


def _continue(run: RunDir, trust_run: bool) -> int:
    home = RunDir(run.root.resolve())
    if (rest := continuation.read_remaining(home)) is None:
        echo("nothing is left to submit: the units were cancelled, or already submitted")
        return 0
    if is_sweep(home) and rest.sweep is not None:
        from hpcddm.commands.sweep import submit_settings

        for file in filter(None, (rest.sweep, rest.experiment)):
            require(Path(file).is_file(), f"{file}: not visible from here; repeat hpcddm sweep by hand")
        return submit_settings(rest.sweep, rest.site, home.root, False, False, rest=rest, trust_run=trust_run)
    experiment = with_absolute_paths(stored_experiment(home), home)
    site, parts = trusted_site_and_template(rest.site, home, trust_run, in_job=True)
    return submit_missing(experiment, site, home, only=rest.units, parts=parts, rest=rest, until=rest.until)
