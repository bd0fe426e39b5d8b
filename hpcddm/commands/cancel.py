"""The verb cancel: end the jobs of one run, told from all others by the tokens in their names."""

from collections import defaultdict
from pathlib import Path

import click

from hpcddm.config import Site
from hpcddm.errors import ConfigError, UserError
from hpcddm.files import stored_experiment
from hpcddm.launch.base import Job, launcher_of
from hpcddm.pipeline import plan
from hpcddm.rundir.journal import Journal, Submission, current
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.lease import lease

PATIENCE_SECONDS = 60
"""How long it waits for a submit that is at work."""


def cancel(root: Path, units: tuple[str, ...]) -> None:
    """End the jobs of some units, or of all; they save before they leave.

    Raises `ConfigError` over an unknown unit, `UserError` when the scheduler does not answer or refuses.
    """
    run = RunDir(root)
    planned = plan(stored_experiment(run))
    for key in units:
        if key not in {unit.key for unit in planned}:
            raise ConfigError(f"{root} has no unit '{key}'; valid: {', '.join(unit.key for unit in planned)}")
    journal = Journal(run.journal)
    queued = [one for one in journal.submissions() if one.scheduler != "local"]
    if not queued:
        click.echo(f"this run works without a queue: Ctrl-C where it was started, or: touch {run.stop}")
        return
    with lease(run.lock, "hpcddm cancel", PATIENCE_SECONDS):
        queued = [one for one in journal.submissions() if one.scheduler != "local"]
        launcher = launcher_of(Site(name=queued[-1].site, scheduler=queued[-1].scheduler), run)
        jobs = launcher.states(queued)
        if jobs is None:
            raise UserError(f"{root}: the scheduler does not answer; nothing was cancelled")
        chosen = {key: job for key, job in jobs.items() if not units or key in units}
        if not chosen:
            click.echo("nothing of this is in the queue; nothing was cancelled")
            return
        # What waits for a job starts when that job ends; so the last ones go first.
        order = [unit.key for unit in reversed(planned) if unit.key in chosen]
        launcher.cancel(*(chosen[key].id for key in order))
        for token, keys in _by_submission(chosen, queued).items():
            journal.cancelled(token, keys)
    for key in reversed(order):
        click.echo(f"cancelled job {chosen[key].id}  {key}")
    waiting = [
        unit.key for unit in planned if unit.key in jobs and unit.key not in chosen and set(unit.reads) & chosen.keys()
    ]
    if waiting:
        click.echo(f"{', '.join(waiting)} will find it missing and stop; cancel that, too, or retry both later")
    click.echo(f"next: hpcddm retry {root}   submits anew what was cancelled")


def _by_submission(chosen: dict[str, Job], queued: list[Submission]) -> dict[str, list[str]]:
    """The units by the token of the submission that counts for each."""
    token_of = {unit: one.uuid for one in current(queued) for unit in one.units}
    found = defaultdict(list)
    for key in chosen:
        found[token_of[key]].append(key)
    return found
