"""What is handed to a scheduler: units of one run, or of several that share a queue, in arrays of one shape."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.config import Experiment
from hpcddm.launch.base import ArraySpec, Launcher, Refused
from hpcddm.pipeline import MONOLITH, STAGE_NAMES, PlannedUnit
from hpcddm.rundir import atomic
from hpcddm.rundir.job import JobId
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.spec import Spec
from hpcddm.site import Site

SURVIVAL_KEYS = (
    "network_interface",
    "signal_lead_seconds",
    "watchdog_minutes",
    "requeue",
    "escalate",
    "look_again_seconds",
)
"""What a job must know of its site."""


@dataclass(frozen=True)
class Item:
    """One unit of one run.

    The journal, the maps and the scripts of what is submitted belong to a home: the run itself, or the sweep's folder.
    """

    run: RunDir
    unit: PlannedUnit
    experiment: Experiment
    name: str
    """What the home's journal calls it: stage/unit, with the run's folder before it where the home holds several."""
    needs: tuple[str, ...]
    """The names of what must have ended before it starts, as far as it is in a queue."""

    @property
    def spec(self) -> Path:
        """What its job is told."""
        return self.run.spec(self.unit.key)


def items_of(units: Sequence[PlannedUnit], experiment: Experiment, run: RunDir, folder: str = "") -> list[Item]:
    """Units of one run as items; `folder` is the run's place in its home, where that is not the run itself."""
    prefix = f"{folder}/" if folder else ""
    found = []
    for unit in units:
        needs = tuple(f"{prefix}{key}" for key in unit.inputs)
        found.append(Item(run, unit, experiment, f"{prefix}{unit.key}", needs))
    return found


def arrays(items: Sequence[Item], site: Site) -> list[list[Item]]:
    """Items that can be one array: of the same stage and of the same shape; stage after stage, else as given."""
    groups: dict[tuple, list[Item]] = {}
    for item in items:
        shape = site.resources_for(*item.unit.key.split("/"))
        # The monolith stays apart: the experts' array has one element per expert.
        groups.setdefault((array_name(item), shape), []).append(item)
    # Of several runs the first may need a report only and the next one everything: no array may read a later one.
    order = {stage: place for place, stage in enumerate(STAGE_NAMES)}
    return sorted(groups.values(), key=lambda group: order.get(group[0].unit.stage, len(order)))


def array_name(item: Item) -> str:
    """What the array of a unit is called, in the job's name and in the script's."""
    return "monolith" if item.unit.key == MONOLITH else item.unit.stage


def array_spec(
    items: Sequence[Item],
    site: Site,
    after: Sequence[JobId] = (),
    throttle: int | None = None,
    begin_seconds: int = 0,
) -> ArraySpec:
    """Describe an array; all its elements may run at the same time unless `throttle` says how many."""
    first = items[0]
    return ArraySpec(
        f"{first.experiment.name}-{array_name(first)}",
        [item.name for item in items],
        [item.spec for item in items],
        site.resources_for(*first.unit.key.split("/")),
        list(after),
        throttle or len(items),
        begin_seconds,
    )


def submit_array(items: Sequence[Item], home: RunDir, launcher: Launcher, spec: ArraySpec, script: str) -> JobId:
    """Journal the intent, submit, journal the job id, return it.

    Raises `Refused` with the scheduler's words, `QueueFull` when it will take the same later; then it took nothing.
    """
    write_specs(items, launcher.site)
    journal = Journal(home.journal)
    site, cluster = launcher.site, spec.resources.cluster
    token = journal.intend(site.scheduler, site.name, spec.keys, spec.name, cluster)
    try:
        job = launcher.submit(spec, token, script)
    except Refused:
        journal.refused(token)
        raise
    journal.submitted(token, job)
    return job


def submit_unit(unit: PlannedUnit, experiment: Experiment, run: RunDir, launcher: Launcher) -> JobId:
    """Submit one unit alone, for launchers that start it at once; return the job id."""
    items = items_of([unit], experiment, run)
    return submit_array(items, run, launcher, array_spec(items, launcher.site), "")


def write_specs(items: Sequence[Item], site: Site) -> None:
    """Write what the units' jobs are told."""
    survival = {key: getattr(site, key) for key in SURVIVAL_KEYS}
    settings: dict[int, dict[str, Any]] = {}
    for item in items:
        if id(item.experiment) not in settings:
            settings[id(item.experiment)] = item.experiment.model_dump(mode="json")
        unit, experiment = item.unit, settings[id(item.experiment)]
        resources = site.resources_for(*unit.key.split("/"))
        shape = {"threads": resources.cpus_per_rank, "gpus": resources.gpus_per_node}
        wanted = {"optional": unit.optional, "min_optional": unit.min_optional}
        spec = Spec(
            unit.key,
            unit.num_units,
            experiment,
            unit.fingerprint_settings,
            unit.requires,
            **shape,
            **survival,
            **wanted,
        )
        spec.write(item.run)


def write_map(specs: Sequence[Path], folder: Path, token: str) -> Path:
    """Write which element of an array runs which spec; relative paths, so that the run can be moved."""
    path = folder / f"{token}.json"
    relative = [os.path.relpath(spec.resolve(), folder.resolve()) for spec in specs]
    atomic.write_json(path, {"specs": relative}, durable=False)
    return path
