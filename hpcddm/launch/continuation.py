"""Continuation of a submission that exceeds the queue's limits: a small last job submits the remaining units.

The job runs the unit `submission/all` and has an entry in the journal like any other job. A run or a sweep has at most
one such pending job. The remaining units are stored in a file in the run's folder `jobs`, which the job reads.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hpcddm.files import atomic, checked_reads, guarded_writes
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.launch.array_items import ArrayItem, make_array_spec, submit_array
from hpcddm.launch.base import Job, Launcher, SubmissionRefused
from hpcddm.pipeline.state import QUEUED
from hpcddm.pipeline.unit_graph import STAGE_NAMES
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CONTINUATION

NICE = 10_000
"""Niceness of the job, above the default of 0, so that jobs already in the queue come first."""
BLIND_MINUTES = 10
"""Minutes that the job waits if the run has no job to depend on."""


@dataclass(frozen=True)
class RemainingUnits:
    """Units that a submission could not submit, and how to submit them."""

    site: str
    units: list[str]
    """Names of the units in the home's journal."""
    sweep: str | None = None
    """File of the sweep; None for a run."""
    experiment: str | None = None
    """File of the sweep's base experiment, because a copy of the code contains no experiments."""
    until: str | None = None
    """Last stage of the submission; None for all stages."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for an invalid name of a site, a unit or a stage."""
        for name in (self.site, *self.units):
            checked_reads.require_inside(name)
        if "/" in self.site or self.until not in (None, *STAGE_NAMES):
            raise ValueError("holds the name of a site or a stage that cannot be")


def read_remaining(home: RunDir) -> RemainingUnits | None:
    """Read the remaining units; None if nothing remains to submit, or the remaining units were cancelled."""
    rest: RemainingUnits | None = checked_reads.read_json(_path(home), RemainingUnits, checked_reads.MANIFEST_BYTES)
    return rest


def delete_remaining(home: RunDir) -> None:
    """Delete the record of the remaining units, so that a later job finds nothing to submit."""
    guarded_writes.remove(_path(home))


def withdraw_units(home: RunDir, units: Collection[str]) -> list[str]:
    """Remove units from the remaining ones, and return the removed units."""
    if (before := read_remaining(home)) is None:
        return []
    if withdrawn := [unit for unit in before.units if unit in units]:
        _store(replace(before, units=[unit for unit in before.units if unit not in withdrawn]), home)
    return withdrawn


def schedule_remaining(
    rest: RemainingUnits,
    items: Sequence[ArrayItem],
    only: Collection[str] | None,
    home: RunDir,
    launcher: Launcher,
    active: Mapping[str, Job],
) -> str:
    """Arrange that the remaining units of this submission and of earlier ones are submitted later.

    Args:
        rest: Units that this submission could not submit.
        items: All items of this submission, submitted or not.
        only: Units to which the submission was restricted; None for no restriction. Other remaining units stay stored.
        home: The run, or the folder of a sweep.
        launcher: Launcher of the site.
        active: Jobs in the queue, by the names of their units.

    Returns:
        A message for the user; '' if nothing remains.
    """
    if (before := read_remaining(home)) is not None and before.site != rest.site:
        later = f"site {before.site} has units to submit in this folder first; later the same command submits these"
        return later if rest.units else ""
    if before is not None and only is not None:
        considered = {*only, *(item.name for item in items)}
        kept = [unit for unit in before.units if unit not in considered]
        is_continued = not rest.units and CONTINUATION in active
        # This submission, not a file that others may have written, decides how units are submitted. Only the units and
        # the last stage of `before` are kept, which can only omit units.
        rest = replace(rest, units=[*kept, *rest.units], until=before.until)
        if is_continued:
            _store(rest, home)
            return ""
    if not rest.units:
        delete_remaining(home)
        return ""
    if not launcher.site.continue_submission:
        return "later the same command submits them"
    return submit_continuation(rest, items, home, launcher, active)


def submit_continuation(
    rest: RemainingUnits, items: Sequence[ArrayItem], home: RunDir, launcher: Launcher, active: Mapping[str, Job]
) -> str:
    """Store the remaining units and submit the job that submits them, unless such a job is already pending.

    Args:
        rest: Units that this submission could not submit.
        items: Items of the submission, which provide the job's name.
        home: The run, or the folder of a sweep.
        launcher: Launcher of the site.
        active: Jobs in the queue, by the names of their units; the new job depends on the first one.

    Returns:
        A message for the user.
    """
    _store(rest, home)
    if (waiting := active.get(CONTINUATION)) and waiting.state in QUEUED:
        return f"job {waiting.id} submits them when there is room"
    unit = PlannedUnit(CONTINUATION, [], {"after": len(Journal(home.journal).submissions())}, None)
    item = ArrayItem(home, unit, items[0].experiment, CONTINUATION, ())
    # Dependencies cannot cross clusters.
    cluster = launcher.site.resources_for(*CONTINUATION.split("/")).cluster
    blocking_jobs = {job.id.array for name, job in active.items() if name != CONTINUATION and job.id.cluster == cluster}
    first = sorted(blocking_jobs, key=_number)[:1]
    spec = make_array_spec([item], launcher.site, first, 1, 0 if first else 60 * BLIND_MINUTES)
    flags = (*(spec.resources.extra_sbatch or ()), f"--nice={NICE}")
    spec = replace(spec, resources=spec.resources.model_copy(update={"extra_sbatch": flags}))
    number = len(Journal(home.journal).submissions()) + 1
    try:
        job = submit_array([item], home, launcher, spec, f"{number:04d}-submission.sbatch")
    except SubmissionRefused:
        # A running continuation job has yet to read the remaining units.
        if CONTINUATION not in active:
            delete_remaining(home)
        return "later the same command submits them"
    return f"job {job} submits them when there is room"


def _store(rest: RemainingUnits, home: RunDir) -> None:
    if not rest.units:
        delete_remaining(home)
        return
    atomic.write_json(_path(home), asdict(rest))


def _number(job: JobId) -> int:
    return int(job.number) if job.number.isdecimal() else 0


def _path(home: RunDir) -> Path:
    return home.jobs / "remaining.json"
