"""The verb cancel: ends the jobs of one run, identified by the tokens in their names."""

import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

import click

from hpcddm.commands.options import RUN, matching_units
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError, SchedulerUnreachable, UserError
from hpcddm.errors.next_step import NextStep, step
from hpcddm.errors.printing import echo
from hpcddm.launch import continuation
from hpcddm.launch.base import Job, Launcher, create_launcher, site_from_journal
from hpcddm.launch.cancel_jobs import is_of_other_user, owner_note
from hpcddm.launch.submission import stored_site
from hpcddm.loading.last_command import retry_commands
from hpcddm.pipeline.state import QUEUED, State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import group_permissions
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal, Submission, select_current
from hpcddm.runs.lease import PATIENCE_SECONDS, lease
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import is_sweep, stored_experiment
from hpcddm.runs.unit_keys import CONTINUATION

POLL_SECONDS = 3
"""Seconds between two queries about jobs that are leaving."""


@click.command()
@RUN
@click.argument("units", nargs=-1, metavar="[STAGE[/UNIT]]...")
@click.option("--now", is_flag=True, help="Do not wait until running units have saved.")
def cancel(run: RunDir, units: tuple[str, ...], now: bool) -> None:
    """Cancel the jobs of RUN, of some of its units, or of whole stages.

    Trainings save before they exit. The command waits for them as long as the site's signal_lead_seconds; a second
    Ctrl-C, like --now, ends them at once. Only jobs that carry a token of this run's journal are touched.

    \b
    Example: hpcddm cancel runs/fashion_mnist train/expert-02
    Next:    hpcddm retry runs/fashion_mnist   submits them again
    """
    home, prefix, reads = _named(run)
    keys = matching_units(run.root, units, [name.removeprefix(prefix) for name in reads])
    units = tuple(f"{prefix}{key}" for key in keys)
    journal = Journal(home.journal)
    queued = [submission for submission in journal.submissions() if submission.scheduler != "local"]
    if not queued:
        reason = "this run works without a queue: Ctrl-C where it was started ends it, and so does a file"
        echo(step("touch", run.stop, reason=reason))
        return
    group_permissions.prepare_writes(home.root)
    with lease(home.lock, "hpcddm cancel", PATIENCE_SECONDS):
        is_whole = not units and not prefix
        if is_whole:
            reads |= {CONTINUATION: []}
        queued = [submission for submission in journal.submissions() if submission.scheduler != "local"]
        launcher = create_launcher(_site(queued[-1], home), home)
        if (jobs := launcher.states(queued)) is None:
            raise SchedulerUnreachable(f"{run.root}: the scheduler does not answer; nothing was cancelled")
        withdrawn = _withdraw(home, None if is_whole else units or tuple(reads))
        # Jobs that wait for a job start when it ends; so cancel the last ones first.
        chosen = {key: jobs[key] for key in reversed(reads) if key in jobs and key in (units or reads)}
        if not chosen:
            echo(f"nothing of this is in the queue; {'no job' if withdrawn else 'nothing'} was cancelled")
            return
        saving = [] if now else [key for key, job in chosen.items() if job.state == State.RUNNING and not job.others]
        # Cancelling other users' jobs may be refused; so they come last.
        foreign = {key: job for key, job in chosen.items() if is_of_other_user(job, queued)}
        ours = {key: job for key, job in chosen.items() if key not in foreign}
        for some in filter(None, (ours, foreign)):
            _cancel(some, [key for key in saving if key in some], queued, launcher, journal)
    echo(*(f"{'leaving  ' if key in saving else 'cancelled'} job {chosen[key].id}  {key}" for key in reversed(chosen)))
    _wait({key: chosen[key] for key in saving}, launcher, queued)
    if waiting := [key for key in reads if key in jobs and key not in chosen and set(reads[key]) & chosen.keys()]:
        echo(f"{', '.join(waiting)} will find it missing and stop; cancel that, too, or retry both later")
    echo(NextStep(retry_commands(run), "cancelled units can be submitted again"))


def _cancel(
    chosen: dict[str, Job], saving: list[str], queued: list[Submission], launcher: Launcher, journal: Journal
) -> None:
    """Cancel jobs, and signal those of `saving` to save and exit.

    The journal is written first: a job that exits reads there whether it may come back. For the jobs of other people it
    is written afterwards: if Slurm refuses, one that starts meanwhile must not end itself.
    """
    ended = {key: job for key, job in chosen.items() if key not in saving}
    leaving = {key: chosen[key] for key in saving}
    for jobs, request in ((ended, launcher.cancel), (leaving, launcher.signal_stop)):
        submissions = _by_submission(jobs, queued)
        is_foreign = any(is_of_other_user(job, queued) for job in jobs.values())
        try:
            if is_foreign:
                request(*_ids(jobs.values()))
            for token, keys in submissions.items():
                journal.record_cancelled(token, keys)
            if not is_foreign:
                request(*_ids(jobs.values()))
        except UserError as error:
            for token, keys in () if is_foreign else submissions.items():
                journal.record_not_cancelled(token, keys)
            raise type(error)(f"{error}{owner_note(jobs.values(), queued)}") from None


def _withdraw(home: RunDir, units: tuple[str, ...] | None) -> list[str]:
    """Withdraw units that waited for room in the queue, None for all of them; print and return them."""
    rest = continuation.read_remaining(home)
    if withdrawn := continuation.withdraw_units(home, rest.units if rest and units is None else units or ()):
        echo(f"{len(withdrawn)} units that waited for room in the queue are not submitted: {withdrawn[0]} ...")
    return withdrawn


def _wait(jobs: dict[str, Job], launcher: Launcher, queued: list[Submission]) -> None:
    """Wait until jobs that save and exit are gone; end them after the site's lead or the second Ctrl-C."""
    if not jobs:
        return
    started, seconds, interruptions = time.time(), launcher.site.signal_lead_seconds, 0
    echo(f"they save before they leave; waiting at most {seconds} s (Ctrl-C twice ends them at once)")
    while jobs and time.time() - started < seconds and interruptions < 2:
        try:
            time.sleep(min(POLL_SECONDS, seconds))
            jobs = _remaining(jobs, launcher, queued)
        except KeyboardInterrupt:
            interruptions += 1
            if interruptions == 1:
                echo("the jobs are saving; press Ctrl-C again to end them at once")
    launcher.cancel(*_ids(jobs.values()))
    echo(f"ended without waiting: {', '.join(jobs)}" if jobs else f"gone after {time.time() - started:.0f} s")


def _remaining(jobs: dict[str, Job], launcher: Launcher, queued: list[Submission]) -> dict[str, Job]:
    """Return the jobs that are still in the queue, and cancel requeued ones, which are pending."""
    if (states := launcher.states(queued)) is None:
        return jobs
    remaining = {key: states[key] for key in jobs if key in states}
    launcher.cancel(*_ids(job for job in remaining.values() if job.state in QUEUED))
    return remaining


def _ids(jobs: Iterable[Job]) -> list[JobId]:
    return [job for entry in jobs for job in (entry.id, *entry.others)]


def _site(last: Submission, run: RunDir) -> Site:
    """Load the site of a submission as it was then."""
    with suppress(ConfigError):
        return stored_site(last.site, run)
    return site_from_journal(last)


def _named(run: RunDir) -> tuple[RunDir, str, dict[str, list[str]]]:
    """Return the home of a run's journal, the prefix of the run's units there, and all units with their inputs.

    A sweep has the units of all its settings; one of its settings has the units in its own folder.
    """
    if is_sweep(run):
        units = [unit for submission in Journal(run.journal).submissions() for unit in submission.units]
        rest = continuation.read_remaining(run)
        units += rest.units if rest else []
        return run, "", {unit: [] for unit in units}
    home = RunDir(run.root.resolve().parent)
    prefix = f"{run.root.resolve().name}/" if is_sweep(home) else ""
    planned = plan_units(stored_experiment(run))
    reads = {f"{prefix}{unit.key}": [f"{prefix}{key}" for key in unit.inputs] for unit in planned}
    return (home if prefix else run), prefix, reads


def _by_submission(chosen: dict[str, Job], queued: list[Submission]) -> dict[str, list[str]]:
    """Group units by the token of the newest submission of each."""
    token_of = {unit: submission.uuid for submission in select_current(queued) for unit in submission.units}
    keys_of = defaultdict(list)
    for key in chosen:
        keys_of[token_of[key]].append(key)
    return keys_of
