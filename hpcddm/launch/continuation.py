"""Continuation of a submission for which the queue had no room: a last small job submits the rest.

The job is a unit like any other, `submission/all`, with a place in the journal; a run or a sweep has at most one such
job pending. The rest is stored in a file beside the jobs, which the job reads when it starts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hpcddm.files import atomic, inside, reading
from hpcddm.launch.array_items import Item, array_spec, submit_array
from hpcddm.launch.base import Job, Launcher, Refused
from hpcddm.pipeline.plan import STAGE_NAMES, PlannedUnit
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.layout import RunDir
from hpcddm.runs.unit_keys import CONTINUATION

NICE = 10_000
"""Niceness of the job, above the default of 0: jobs that are in the queue already come first."""
BLIND_MINUTES = 10
"""Minutes that the job waits where it can depend on no job of the run."""


@dataclass(frozen=True)
class Rest:
    """Units that a submission left out, and the way to submit them."""

    site: str
    units: list[str]
    """Names of the units in the home's journal."""
    sweep: str | None = None
    """The file of the sweep; None of a run."""
    experiment: str | None = None
    """The file of the sweep's base experiment: in a snapshot of the code no experiments are found by their names."""
    until: str | None = None
    """Last stage of the submission; None for all."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for what cannot be the name of a site, a unit or a stage."""
        for name in (self.site, *self.units):
            reading.require_inside(name)
        if "/" in self.site or self.until not in (None, *STAGE_NAMES):
            raise ValueError("holds the name of a site or a stage that cannot be")


def read(home: RunDir) -> Rest | None:
    """Read the rest; None when nothing is left to submit, or the rest was cancelled."""
    rest: Rest | None = reading.read_json(_path(home), Rest, reading.MANIFEST_BYTES)
    return rest


def forget(home: RunDir) -> None:
    """Delete the record of a submission that is to be continued; a later job finds nothing to submit."""
    inside.remove(_path(home))


def withdraw(home: RunDir, units: Collection[str]) -> list[str]:
    """Take units out of what is left to submit; return those that were there."""
    before = read(home)
    if before is None:
        return []
    withdrawn = [unit for unit in before.units if unit in units]
    if withdrawn:
        _store(replace(before, units=[unit for unit in before.units if unit not in withdrawn]), home)
    return withdrawn


def schedule(
    rest: Rest,
    items: Sequence[Item],
    only: Collection[str] | None,
    home: RunDir,
    launcher: Launcher,
    active: Mapping[str, Job],
) -> str:
    """Arrange that units left out by this submission and earlier ones are submitted; return a message for the user.

    rest: units that this submission left out; items: all that it considered, submitted or not; only: units that it was
    restricted to, None for no restriction. Units outside the restriction stay in the stored rest.
    """
    before = read(home)
    if before is not None and before.site != rest.site:
        later = f"site {before.site} has units to submit in this folder first; later the same command submits these"
        return later if rest.units else ""
    if before is not None and only is not None:
        looked_at = {*only, *(item.name for item in items)}
        kept = [unit for unit in before.units if unit not in looked_at]
        is_continued = not rest.units and CONTINUATION in active
        # How they are submitted says this submission, and no file that others may have written; a last stage only
        # leaves units out.
        rest = replace(rest, units=[*kept, *rest.units], until=before.until)
        if is_continued:
            _store(rest, home)
            return ""
    if not rest.units:
        forget(home)
        return ""
    if not launcher.site.continue_submission:
        return "later the same command submits them"
    return submit_continuation(rest, items, home, launcher, active)


def submit_continuation(
    rest: Rest, items: Sequence[Item], home: RunDir, launcher: Launcher, active: Mapping[str, Job]
) -> str:
    """Store the rest and submit the job that continues, after the first of `active`; return a message for the user.

    items: any of the submission, for the job's name. A job that waits already takes this rest, too.
    """
    _store(rest, home)
    waiting = active.get(CONTINUATION)
    if waiting and waiting.state == "pending":
        return f"job {waiting.id} submits them when there is room"
    unit = PlannedUnit(CONTINUATION, [], {"after": len(Journal(home.journal).submissions())}, None)
    item = Item(home, unit, items[0].experiment, CONTINUATION, ())
    # No dependency crosses clusters.
    cluster = launcher.site.resources_for(*CONTINUATION.split("/")).cluster
    blocking_jobs = {job.id.array for name, job in active.items() if name != CONTINUATION and job.id.cluster == cluster}
    first = sorted(blocking_jobs, key=_number)[:1]
    spec = array_spec([item], launcher.site, first, 1, 0 if first else 60 * BLIND_MINUTES)
    flags = (*(spec.resources.extra_sbatch or ()), f"--nice={NICE}")
    spec = replace(spec, resources=spec.resources.model_copy(update={"extra_sbatch": flags}))
    number = len(Journal(home.journal).submissions()) + 1
    try:
        job = submit_array([item], home, launcher, spec, f"{number:04d}-submission.sbatch")
    except Refused:
        # One that runs has yet to look at the rest.
        if CONTINUATION not in active:
            forget(home)
        return "later the same command submits them"
    return f"job {job} submits them when there is room"


def _store(rest: Rest, home: RunDir) -> None:
    if not rest.units:
        forget(home)
        return
    atomic.write_json(_path(home), asdict(rest))


def _number(job: JobId) -> int:
    return int(job.number) if job.number.isdecimal() else 0


def _path(home: RunDir) -> Path:
    return home.jobs / "rest.json"
