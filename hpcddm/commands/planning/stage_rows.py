"""Rows of the table that `hpcddm plan` prints, one for each stage and shape of its jobs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hpcddm.commands.planning.benchmark import Benchmark
from hpcddm.commands.planning.costs import UnitCosts
from hpcddm.commands.planning.planned_collection import PlannedCollection, plan_collection
from hpcddm.commands.planning.timing import CostEstimate, TimeEstimator
from hpcddm.config.site import Resources, Site
from hpcddm.errors import ConfigError
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.launch.checks import disk_estimates
from hpcddm.pipeline.stage import DiskSpace
from hpcddm.pipeline.unit_graph import STAGES, is_collective, kind_of
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import MONOLITH

SHARD = "shard"
"""Stage that indexes the images."""


@dataclass(frozen=True)
class StageRow:
    """Units of one stage and one shape; None means unknown."""

    stage: str
    units: int
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int
    gpus_per_node: int
    flops: int | None
    """FLOPs of all units together."""
    unit_hours: float | None
    """Hours of the longest unit."""
    cpu_hours: float | None
    gpu_hours: float | None
    slots: int | None
    """Number of jobs in a row that the longest unit needs, at the site's time limit; 0 if it starts again in each and
    is complete in none.
    """
    minutes: int
    bytes_kept: int
    bytes_working: int
    files: int
    time_source: str
    time_detail: str


def stage_rows(
    units: list[PlannedUnit], costs: UnitCosts, site: Site, run: RunDir, speed: float | None
) -> tuple[list[StageRow], PlannedCollection, dict[str, CostEstimate]]:
    """Estimate the costs of units at a site.

    Args:
        units: The units.
        costs: Their work.
        site: The site.
        run: The run.
        speed: FLOPs per second of one rank; None to measure it.

    Returns:
        The rows, the collection of images, and the cost of every unit by key.
    """
    experiment, counts = costs.experiment, costs.workload.counts
    groups: dict[tuple[str, Resources], list[PlannedUnit]] = {}
    for unit in units:
        name = unit.key if unit.key == MONOLITH or unit.key in STAGES[unit.stage].other_kinds else unit.stage
        groups.setdefault((name, site.resources_for(*unit.key.split("/"))), []).append(unit)
    rows: list[StageRow] = []
    by_key: dict[str, CostEstimate] = {}
    with Benchmark(experiment) as benchmark:
        clock = TimeEstimator(costs, benchmark, run, site.scheduler == "local", speed)
        for (name, resources), group in groups.items():
            siblings = [unit.key for unit in units if kind_of(unit.key) is kind_of(group[0].key)]
            estimates = [clock.estimate(unit.key, siblings, resources) for unit in group]
            by_key |= {unit.key: estimate for unit, estimate in zip(group, estimates, strict=True)}
            slots = [_slots(group[0].key, estimate.seconds, resources, site) for estimate in estimates]
            needs = [
                disk_estimates.estimate_unit(unit, experiment, site, counts, many or 1)
                for unit, many in zip(group, slots, strict=True)
            ]
            rows.append(_row(name, resources, estimates, slots, sum(needs, DiskSpace())))
        index = next(row for row in rows if row.stage == SHARD)
        tars = plan_collection(experiment, counts, site, benchmark, (index.units, index.unit_hours), index.bytes_kept)
    return rows, tars, by_key


def _slots(key: str, seconds: float | None, resources: Resources, site: Site) -> int | None:
    """Compute the number of jobs in a row that a unit needs; None without a time limit, or without an estimate."""
    if site.scheduler != "slurm" or seconds is None:
        return None
    if (usable := 60 * resources.minutes - site.signal_lead_seconds) <= 0:
        limit = f"signal_lead_seconds, {site.signal_lead_seconds}; no job could make a step"
        raise ConfigError(f"site {site.name}: minutes: {resources.minutes} do not exceed {limit}")
    jobs = max(math.ceil(seconds / usable), 1)
    return jobs if is_collective(key) else int(jobs == 1)


def restarting_units(rows: Sequence[StageRow], site: Site) -> list[str]:
    """Describe the stages whose units start again in every job and need more time than one job has."""
    lead = site.signal_lead_seconds / 60
    return [
        f"{row.stage}: a unit takes {row.unit_hours:.3g} hours, and starts again in each job of {row.minutes} minutes;"
        f" give site {site.name} stages: {{{row.stage}: {{minutes: {math.ceil(60 * row.unit_hours + lead)}}}}}"
        for row in rows
        if row.slots == 0 and row.unit_hours is not None
    ]


def _row(
    name: str, resources: Resources, estimates: Sequence[Any], slots: Sequence[int | None], need: DiskSpace
) -> StageRow:
    of_each = [None if estimate.seconds is None else estimate.seconds / 3600 for estimate in estimates]
    hours = _together(sum, of_each)
    return StageRow(
        stage=name,
        units=len(estimates),
        **resources.model_dump(include={"nodes", "ranks_per_node", "cpus_per_rank", "gpus_per_node", "minutes"}),
        flops=_together(sum, [estimate.flops for estimate in estimates]),
        unit_hours=_together(max, of_each),
        cpu_hours=None if hours is None else hours * resources.ranks * resources.cpus_per_rank,
        gpu_hours=None if hours is None else hours * resources.nodes * resources.gpus_per_node,
        slots=0 if 0 in slots else _together(max, slots),
        bytes_kept=need.kept,
        bytes_working=need.working,
        files=need.files,
        time_source=estimates[0].source,
        time_detail=estimates[0].detail,
    )


def _together(combine: Callable[[Any], Any], values: Sequence[Any]) -> Any:
    """Combine values; None if one of them is unknown."""
    return None if None in values else combine(values)
