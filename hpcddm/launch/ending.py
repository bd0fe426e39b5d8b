"""Ends jobs that may be somebody else's, and says whose they are where that is refused."""

from collections.abc import Collection

from hpcddm.errors import UserError
from hpcddm.launch.base import Job, Launcher
from hpcddm.rundir import sharing
from hpcddm.rundir.job import JobId
from hpcddm.rundir.journal import Submission


def end(jobs: Collection[Job], submissions: list[Submission], launcher: Launcher) -> None:
    """Cancel jobs.

    Raises `UserError` with the scheduler's words when it refuses, and names who submitted what is not the caller's.
    """
    try:
        launcher.cancel(*(one for job in jobs for one in (job.id, *job.others)))
    except UserError as error:
        raise UserError(f"{error}{whose(jobs, submissions)}") from None


def whose(jobs: Collection[Job], submissions: list[Submission]) -> str:
    """The end of a complaint over jobs that other people submitted; empty where there are none."""
    users = {one.job: one.user for one in submissions if one.user not in ("", sharing.user())}
    foreign = {job.id: users[array] for job in jobs if (array := JobId(job.id).array) in users}
    if not foreign:
        return ""
    first, *more = foreign
    others = f", and so do {len(more)} more jobs of other people" if more else ""
    return f"; job {first} belongs to {foreign[first]}{others}; ask them, or an operator"


def is_foreign(job: Job, submissions: list[Submission]) -> bool:
    """Tell if somebody else submitted the job."""
    return bool(whose([job], submissions))
