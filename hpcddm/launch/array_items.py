"""Items of a submission, grouped into arrays of equal resources; the hook that reports their end."""

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Site
from hpcddm.files import atomic
from hpcddm.jobs.outcome import HookEvent
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.jobs.spec import Spec
from hpcddm.launch.base import ArraySpec, Launcher, SubmissionRefused
from hpcddm.pipeline.unit_graph import STAGE_NAMES, is_collective
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import MONOLITH, stage_of

JOB_KEYS = sorted({one.name for one in fields(Spec)} & {*Site.model_fields} - {"resources"})
"""Site keys that a job needs, by the names of both; its resources are those of its stage."""


@dataclass(frozen=True)
class ArrayItem:
    """One unit of a submission.

    Journal, element maps and scripts of a submission belong to its home: the run itself, or the sweep's folder.
    """

    run: RunDir
    unit: PlannedUnit
    experiment: Experiment
    name: str
    """Name in the home's journal: `stage/unit`, in a sweep `setting/stage/unit`."""
    needs: tuple[str, ...]
    """Names of the units whose jobs, if queued, must end before this unit starts."""

    @property
    def spec(self) -> Path:
        """Path of the spec that its job reads."""
        return self.run.spec(self.unit.key)


def make_items(units: Iterable[PlannedUnit], experiment: Experiment, run: RunDir) -> list[ArrayItem]:
    """Create the items for units of a run that is its own home."""
    return [ArrayItem(run, unit, experiment, unit.key, tuple(unit.inputs)) for unit in units]


def group_into_arrays(items: Sequence[ArrayItem], site: Site) -> list[list[ArrayItem]]:
    """Group items that can form one array: items of the same stage with equal resources.

    A unit that reads another unit of its stage goes into a later array.

    Args:
        items: Items in the order of the pipeline.
        site: The site, which sets the resources of each unit.

    Returns:
        The groups, by stage and otherwise in the given order.
    """
    groups: dict[tuple, list[ArrayItem]] = {}
    levels = _levels(items)
    for item in items:
        shape = site.resources_for(*item.unit.key.split("/"))
        # The monolith has its own array: the experts' array has one element per expert.
        groups.setdefault((levels[item.name], array_name(item), shape), []).append(item)
    # In a sweep the first run may need only a report and the next run all stages: no array may read a later one.
    order = {stage: place for place, stage in enumerate(STAGE_NAMES)}
    placed = sorted(groups.items(), key=lambda group: (order.get(group[1][0].unit.stage, len(order)), group[0][0]))
    return [group for _, group in placed]


def _levels(items: Sequence[ArrayItem]) -> dict[str, int]:
    """Return the level of each unit within its stage, by name: above the units that it reads there, or 0."""
    within: dict[str, list[str]] = {}
    for item in items:
        # The table of a sweep has needs but no inputs.
        pairs = zip(item.unit.inputs, item.needs, strict=False)
        within[item.name] = [name for key, name in pairs if stage_of(key) == item.unit.stage]

    @cache
    def level(name: str) -> int:
        return 1 + max(map(level, within[name])) if within.get(name) else 0

    return {name: level(name) for name in within}


def array_name(item: ArrayItem) -> str:
    """Return the name of a unit's array, which the names of job and script contain."""
    return "monolith" if item.unit.key == MONOLITH else item.unit.stage


def make_array_spec(
    items: Sequence[ArrayItem],
    site: Site,
    after: Sequence[JobId] = (),
    throttle: int | None = None,
    begin_seconds: int = 0,
    waits_for: Sequence[str] = (),
) -> ArraySpec:
    """Describe the array of some items.

    Args:
        items: Items of the array, with equal resources.
        site: The site.
        after: Jobs that must end first.
        throttle: Maximum number of elements that run at the same time; None for all.
        begin_seconds: Seconds before the first check of inputs from another cluster.
        waits_for: Names of the jobs in `after`, for the user.
    """
    first = items[0]
    name, resources = f"{first.experiment.name}-{array_name(first)}", site.resources_for(*first.unit.key.split("/"))
    keys, specs = [item.name for item in items], [item.spec for item in items]
    return ArraySpec(name, keys, specs, resources, list(after), throttle or len(items), begin_seconds, tuple(waits_for))


def submit_array(items: Sequence[ArrayItem], home: RunDir, launcher: Launcher, spec: ArraySpec, script: str) -> JobId:
    """Submit an array: record the intent in the journal, call the scheduler, and record the job id.

    Args:
        items: Items of the array.
        home: The run, or the folder of a sweep.
        launcher: Launcher of the site.
        spec: Description of the array, as `make_array_spec` returns it.
        script: Name of the batch script.

    Returns:
        The id of the job.

    Raises:
        QueueFull: If the scheduler would accept the array later; it has accepted none of it.
        SubmissionRefused: If the scheduler refuses the array.
    """
    write_specs(items, launcher.site)
    journal = Journal(home.journal)
    site, cluster = launcher.site, spec.resources.cluster
    token = journal.record_intent(site.scheduler, site.name, spec.keys, spec.name, cluster)
    try:
        job = launcher.submit(spec, token, script)
    except SubmissionRefused:
        journal.record_refused(token)
        raise
    journal.record_submitted(token, job)
    return job


def submit_unit(unit: PlannedUnit, experiment: Experiment, run: RunDir, launcher: Launcher) -> JobId:
    """Submit a single unit to a launcher that starts it immediately, and return the job id."""
    items = make_items([unit], experiment, run)
    return submit_array(items, run, launcher, make_array_spec(items, launcher.site), "")


def write_specs(items: Sequence[ArrayItem], site: Site) -> None:
    """Write the specs that the units' jobs read."""
    of_site: dict[str, Any] = {key: getattr(site, key) for key in JOB_KEYS}
    settings: dict[int, dict[str, Any]] = {}
    for item in items:
        if id(item.experiment) not in settings:
            settings[id(item.experiment)] = item.experiment.model_dump(mode="json")
        Spec(
            experiment=settings[id(item.experiment)],
            resources=site.resources_for(*item.unit.key.split("/")).for_job,
            is_collective=is_collective(item.unit.key),
            **vars(item.unit),
            **of_site,
        ).write(item.run)


def write_element_map(specs: Sequence[Path], folder: Path, token: str) -> Path:
    """Write the map from an array's elements to their specs, with relative paths so that the run can be moved.

    Args:
        specs: Path of each element's spec.
        folder: Folder of the map.
        token: Token of the submission, which names the file.

    Returns:
        The path of the map.
    """
    path = folder / f"{token}.json"
    relative = [os.path.relpath(spec.resolve(), folder.resolve()) for spec in specs]
    atomic.write_json(path, {"specs": relative}, durable=False)
    return path


def call_hook(site: Site, run: RunDir, event: HookEvent, unit: str, reason: str = "") -> None:
    """Run the site's hook, if it has one; a failure of the hook is ignored.

    The hook gets event, unit, reason and run in the variables HPCDDM_EVENT, HPCDDM_UNIT, HPCDDM_REASON and HPCDDM_RUN.
    Jobs call the hook from the batch script instead.
    """
    if site.hook is None:
        return
    details = {"EVENT": event, "UNIT": unit, "REASON": reason, "RUN": str(run.root.resolve())}
    environment = os.environ | {f"HPCDDM_{name}": value for name, value in details.items()}
    subprocess.run(["bash", "-c", site.hook], env=environment, check=False)
