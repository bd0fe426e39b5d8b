"""Runs under several schedulers: a unit that one of them may still have is not started by another."""

import time
from collections.abc import Collection

from hpcddm.errors import UserError
from hpcddm.errors.next_step import command
from hpcddm.jobs.activity import read_activity
from hpcddm.jobs.attempt_records import read_records
from hpcddm.jobs.outcome import COMES_BACK
from hpcddm.launch.base import Launcher, create_launcher, site_from_journal
from hpcddm.runs import manifest
from hpcddm.runs.journal import Submission, select_current
from hpcddm.runs.run_dir import RunDir, run_in_home
from hpcddm.runs.unit_keys import key_in_run


def check_other_schedulers(
    submissions: list[Submission], home: RunDir, launcher: Launcher, names: Collection[str]
) -> None:
    """Refuse units that another scheduler than the site's has in its queue, or may have.

    names: units to run, under their names in the submissions, relative to `home`.
    Raises `UserError` naming a unit, its job and the next step.
    """
    others = [one for one in select_current(submissions) if one.scheduler != launcher.site.scheduler]
    others = [submission for submission in others if set(submission.units) & set(names)]
    _check_queued([submission for submission in others if submission.scheduler != "local"], home, names)
    _check_local([submission for submission in others if submission.scheduler == "local"], home, names)


def _check_queued(submissions: list[Submission], home: RunDir, names: Collection[str]) -> None:
    """Refuse units that wait or run in a queue; where the queue does not answer, all that have not ended for sure."""
    if not submissions:
        return
    scheduler, site = submissions[-1].scheduler, submissions[-1].site
    jobs = create_launcher(site_from_journal(submissions[-1]), home).states(submissions)
    cancel = command("hpcddm", "cancel", home.root)
    if jobs is not None:
        if alive := {name: job for name, job in jobs.items() if name in names}:
            name, job = next(iter(alive.items()))
            more = f" (and {len(alive) - 1} more)" if len(alive) > 1 else ""
            advice = f"go on with --site {site}, or end its jobs first: {cancel}"
            raise UserError(f"{home.root}: {name}{more} is {job.state} as job {job.id} of site {site}; {advice}")
        return
    for submission in reversed(submissions):
        if unknown := [name for name in submission.units if name in names and not _is_over(name, submission, home)]:
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            raise UserError(
                f"{home.root}: {unknown[0]}{more} was submitted to {scheduler} by site {submission.site} as job"
                f" {submission.job}, and nobody answers here whether that still waits or runs; where {scheduler}"
                f" answers: {cancel}; if that cluster is gone for good, move {home.journal} away"
            )


def _is_over(name: str, submission: Submission, home: RunDir) -> bool:
    """Tell by the files if no job of this submission will work at the unit again."""
    run, key = run_in_home(home, name), key_in_run(name)
    if name in submission.cancelled or manifest.read_if_usable(run.unit(key)):
        return True
    attempts = [attempt for attempt in read_records(run.logs(key)) if attempt.token == submission.uuid]
    return bool(attempts) and attempts[-1].decision is not None and attempts[-1].decision not in COMES_BACK


def _check_local(submissions: list[Submission], home: RunDir, names: Collection[str]) -> None:
    """Refuse units that run without a queue, here or on another machine, by their heartbeats."""
    for name in (name for submission in submissions for name in submission.units if name in names):
        work = read_activity(run_in_home(home, name), key_in_run(name))
        if work.is_running and work.beat and work.token is None:
            raise UserError(
                f"{home.root}: {name} runs without a queue on {work.beat.host}, its last sign of life is"
                f" {time.time() - work.beat.time:.0f} s old; wait for it, or stop it there with Ctrl-C"
            )
