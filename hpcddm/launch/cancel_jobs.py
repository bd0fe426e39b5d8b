"""Cancels jobs; an error about jobs of another user names that user."""

from collections.abc import Collection

from hpcddm.errors import UserError
from hpcddm.launch.base import Job, Launcher
from hpcddm.runs import group_permissions
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Submission


def cancel_jobs(jobs: Collection[Job], submissions: list[Submission], launcher: Launcher) -> None:
    """Cancel jobs.

    Raises `UserError` with the scheduler's words, and with the owners of jobs of other people, when it refuses.
    """
    try:
        launcher.cancel(*(job_id for job in jobs for job_id in (job.id, *job.others)))
    except UserError as error:
        raise type(error)(f"{error}{owner_note(jobs, submissions)}") from None


def owner_note(jobs: Collection[Job], submissions: list[Submission]) -> str:
    """Return the end of an error message that names the owner of other people's jobs; empty where there are none."""
    users = {one.job: one.user for one in submissions if one.user not in ("", group_permissions.current_user())}
    foreign = {job.id: users[array] for job in jobs if (array := JobId(job.id).array) in users}
    if not foreign:
        return ""
    first, *more = foreign
    others = f", and so do {len(more)} more jobs of other people" if more else ""
    return f"; job {first} belongs to {foreign[first]}{others}; ask them, or an operator"


def is_of_other_user(job: Job, submissions: list[Submission]) -> bool:
    """Tell if another user submitted the job."""
    return bool(owner_note([job], submissions))
