"""Jobs that are ending: new jobs wait for none of them, and their units are submitted when they have left the queue."""

import time
from collections.abc import Sequence

from hpcddm.errors import SchedulerUnreachable, UserError
from hpcddm.errors.printing import echo
from hpcddm.launch.base import Job, Launcher
from hpcddm.pipeline.state import QUEUED, State
from hpcddm.runs import manifest
from hpcddm.runs.journal import Submission
from hpcddm.runs.run_dir import RunDir, run_in_home
from hpcddm.runs.unit_keys import CONTINUATION, key_in_run

LEAVING_SECONDS = 120
"""Seconds that a submission waits for jobs that are ending; longer where jobs may take longer to save."""
POLL_SECONDS = 2


def settled_jobs(home: RunDir, launcher: Launcher, submissions: Sequence[Submission]) -> dict[str, Job]:
    """Return the jobs that wait or run, by unit, after the cancelled and ending ones have left the queue.

    A job that is ending and comes back, as a requeued one does, is among them.
    Raises `SchedulerUnreachable` when the scheduler does not answer, `UserError` when a job takes too long to end.
    """
    newest = {unit: submission for submission in submissions for unit in submission.units}
    seconds, began = max(LEAVING_SECONDS, launcher.site.signal_lead_seconds), None
    while True:
        jobs = launcher.states(list(submissions))
        if jobs is None:
            text = "jobs were submitted and the scheduler does not answer; try again when it does"
            raise SchedulerUnreachable(f"{home.root}: {text}")
        withdrawn = {unit: job for unit, job in jobs.items() if unit in newest[unit].cancelled}
        leaving = withdrawn | {unit: job for unit, job in jobs.items() if _is_ending(unit, job, home)}
        if not leaving:
            return jobs
        first = next(iter(leaving))
        if began is None:
            began = time.monotonic()
            number = f"{len(leaving)} jobs that are" if len(leaving) > 1 else "a job that is"
            echo(f"waiting for {number} ending, at most {seconds} s: {leaving[first].id} ({first}) ...")
        if time.monotonic() - began > seconds:
            raise UserError(
                f"job {leaving[first].id} of {first} is still ending after {seconds} s;"
                " repeat the command when it has left the queue"
            )
        # Slurm may requeue even a job that was just cancelled.
        launcher.cancel(*(job.id for job in withdrawn.values() if job.state in QUEUED))
        time.sleep(POLL_SECONDS)


def _is_ending(unit: str, job: Job, home: RunDir) -> bool:
    """Tell if a job is ending while its unit is not complete, and no job that it submitted itself follows."""
    if job.state != State.STOPPING or job.others or unit == CONTINUATION:
        return False
    return manifest.read_if_usable(run_in_home(home, unit).unit(key_in_run(unit))) is None
