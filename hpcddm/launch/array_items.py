"""Items that are submitted, in arrays of one shape, and the user's own command at their end."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Site
from hpcddm.files import atomic
from hpcddm.jobs.outcome import HookEvent
from hpcddm.jobs.spec import Spec
from hpcddm.launch.base import ArraySpec, Launcher, Refused
from hpcddm.pipeline.plan import STAGE_NAMES, PlannedUnit, is_collective
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.layout import RunDir
from hpcddm.runs.unit_keys import MONOLITH

SURVIVAL_KEYS = (
    "network_interface",
    "signal_lead_seconds",
    "watchdog_minutes",
    "requeue",
    "escalate",
    "keep_states",
    "recheck_seconds",
    "max_excluded_nodes",
)
"""Site keys that a job needs."""


@dataclass(frozen=True)
class Item:
    """One unit of one run.

    The journal, the maps and the scripts of what is submitted belong to a home: the run itself, or the sweep's folder.
    """

    run: RunDir
    unit: PlannedUnit
    experiment: Experiment
    name: str
    """Name in the home's journal: stage/unit, with the run's folder before it where the home holds several."""
    needs: tuple[str, ...]
    """Names of the units that must have ended before it starts, as far as they are in a queue."""

    @property
    def spec(self) -> Path:
        """Path of the spec that its job reads."""
        return self.run.spec(self.unit.key)


def items_of(units: Sequence[PlannedUnit], experiment: Experiment, run: RunDir, folder: str = "") -> list[Item]:
    """Make items of the units of one run; `folder` is the run's place in its home, where that is not the run itself."""
    prefix = f"{folder}/" if folder else ""
    items = []
    for unit in units:
        needs = tuple(f"{prefix}{key}" for key in unit.inputs)
        items.append(Item(run, unit, experiment, f"{prefix}{unit.key}", needs))
    return items


def arrays(items: Sequence[Item], site: Site) -> list[list[Item]]:
    """Group items that can be one array: of the same stage and shape; stage after stage, else in the given order."""
    groups: dict[tuple, list[Item]] = {}
    for item in items:
        shape = site.resources_for(*item.unit.key.split("/"))
        # The monolith stays apart: the experts' array has one element per expert.
        groups.setdefault((array_name(item), shape), []).append(item)
    # Of several runs the first may need a report only and the next one everything: no array may read a later one.
    order = {stage: place for place, stage in enumerate(STAGE_NAMES)}
    return sorted(groups.values(), key=lambda group: order.get(group[0].unit.stage, len(order)))


def array_name(item: Item) -> str:
    """Return the name of a unit's array, as in the names of the job and of the script."""
    return "monolith" if item.unit.key == MONOLITH else item.unit.stage


def array_spec(
    items: Sequence[Item],
    site: Site,
    after: Sequence[JobId] = (),
    throttle: int | None = None,
    begin_seconds: int = 0,
    waits_for: Sequence[str] = (),
) -> ArraySpec:
    """Describe an array; all its elements may run at the same time unless `throttle` limits their number."""
    first = items[0]
    return ArraySpec(
        f"{first.experiment.name}-{array_name(first)}",
        [item.name for item in items],
        [item.spec for item in items],
        site.resources_for(*first.unit.key.split("/")),
        list(after),
        throttle or len(items),
        begin_seconds,
        tuple(waits_for),
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
    """Write the specs that the units' jobs read."""
    survival: dict[str, Any] = {key: getattr(site, key) for key in SURVIVAL_KEYS}
    settings: dict[int, dict[str, Any]] = {}
    for item in items:
        if id(item.experiment) not in settings:
            settings[id(item.experiment)] = item.experiment.model_dump(mode="json")
        unit, experiment = item.unit, settings[id(item.experiment)]
        spec = Spec(
            unit.key,
            experiment,
            unit.fingerprint_settings,
            unit.requires,
            site.resources_for(*unit.key.split("/")).for_job,
            is_collective=is_collective(unit.key),
            optional=unit.optional,
            min_optional=unit.min_optional,
            extras=list(unit.extras),
            parts=unit.parts,
            lengths=list(unit.lengths),
            **survival,
        )
        spec.write(item.run)


def write_map(specs: Sequence[Path], folder: Path, token: str) -> Path:
    """Write the map from element to spec of an array, in relative paths, so that the run can be moved."""
    path = folder / f"{token}.json"
    relative = [os.path.relpath(spec.resolve(), folder.resolve()) for spec in specs]
    atomic.write_json(path, {"specs": relative}, durable=False)
    return path


def call_hook(site: Site, run: RunDir, event: HookEvent, unit: str, reason: str = "") -> None:
    """Run the site's hook, if it has one, with event, unit, reason and run in variables. Its failure is ignored.

    Jobs call the hook themselves, in the batch script.
    """
    if site.hook is None:
        return
    details = {"EVENT": event, "UNIT": unit, "REASON": reason, "RUN": str(run.root.resolve())}
    environment = os.environ | {f"HPCDDM_{name}": value for name, value in details.items()}
    subprocess.run(["bash", "-c", site.hook], env=environment, check=False)
