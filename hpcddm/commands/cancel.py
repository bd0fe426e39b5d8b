"""The verb cancel: end the jobs of one run, told from all others by the tokens in their names."""

from collections import defaultdict
from pathlib import Path

import click

from hpcddm.errors import ConfigError, UserError
from hpcddm.files import is_sweep, stored_experiment
from hpcddm.launch.base import Job, launcher_of
from hpcddm.pipeline import plan
from hpcddm.rundir.journal import Journal, Submission, current
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.lease import lease
from hpcddm.site import Site

PATIENCE_SECONDS = 60
"""How long it waits for a submit that is at work."""


def cancel(root: Path, units: tuple[str, ...]) -> None:
    """End the jobs of some units, or of all; they save before they leave.

    Raises `ConfigError` over an unknown unit, `UserError` when the scheduler does not answer or refuses.
    """
    run, prefix, reads = _named(RunDir(root))
    units = tuple(f"{prefix}{key}" for key in units)
    for name in units:
        if name not in reads:
            valid = ", ".join(name.removeprefix(prefix) for name in reads)
            raise ConfigError(f"{root} has no unit '{name.removeprefix(prefix)}'; valid: {valid}")
    journal = Journal(run.journal)
    queued = [one for one in journal.submissions() if one.scheduler != "local"]
    if not queued:
        click.echo(f"this run works without a queue: Ctrl-C where it was started, or: touch {RunDir(root).stop}")
        return
    with lease(run.lock, "hpcddm cancel", PATIENCE_SECONDS):
        queued = [one for one in journal.submissions() if one.scheduler != "local"]
        launcher = launcher_of(Site(name=queued[-1].site, scheduler=queued[-1].scheduler), run)
        jobs = launcher.states(queued)
        if jobs is None:
            raise UserError(f"{root}: the scheduler does not answer; nothing was cancelled")
        chosen = {key: job for key, job in jobs.items() if key in (units or reads)}
        if not chosen:
            click.echo("nothing of this is in the queue; nothing was cancelled")
            return
        # What waits for a job starts when that job ends; so the last ones go first.
        order = [key for key in reversed(reads) if key in chosen]
        launcher.cancel(*(job for key in order for job in (chosen[key].id, *chosen[key].others)))
        for token, keys in _by_submission(chosen, queued).items():
            journal.cancelled(token, keys)
    for key in reversed(order):
        click.echo(f"cancelled job {chosen[key].id}  {key}")
    waiting = [key for key in reads if key in jobs and key not in chosen and set(reads[key]) & chosen.keys()]
    if waiting:
        click.echo(f"{', '.join(waiting)} will find it missing and stop; cancel that, too, or retry both later")
    again = "the same hpcddm sweep" if is_sweep(run) else f"hpcddm retry {root}"
    click.echo(f"next: {again}   submits anew what was cancelled")


def _named(run: RunDir) -> tuple[RunDir, str, dict[str, list[str]]]:
    """Whose journal holds the jobs of a run, what it puts before its units, and all of them with what they read.

    Of a sweep those are all its units; of one of its settings those that it shares with no other before it.
    """
    if is_sweep(run):
        units = [unit for one in Journal(run.journal).submissions() for unit in one.units]
        return run, "", {unit: [] for unit in units}
    home = RunDir(run.root.resolve().parent)
    prefix = f"{run.root.resolve().name}/" if is_sweep(home) else ""
    planned = plan(stored_experiment(run))
    reads = {f"{prefix}{unit.key}": [f"{prefix}{key}" for key in unit.reads] for unit in planned}
    return (home if prefix else run), prefix, reads


def _by_submission(chosen: dict[str, Job], queued: list[Submission]) -> dict[str, list[str]]:
    """The units by the token of the submission that counts for each."""
    token_of = {unit: one.uuid for one in current(queued) for unit in one.units}
    found = defaultdict(list)
    for key in chosen:
        found[token_of[key]].append(key)
    return found
