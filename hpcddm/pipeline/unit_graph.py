"""Graph of an experiment's units, built from the declarations of the stages."""

from collections.abc import Container, Iterable, Mapping
from typing import Any

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.pipeline.stage import GpuUse, Stage, UnitKind, create_stage
from hpcddm.runs.manifest import flatten
from hpcddm.runs.unit_keys import EXPERT, PROBE, probe_key, stage_of

COSTS = {GpuUse.NONE: 1, GpuUse.ONE: 2, GpuUse.NODE: 4, GpuUse.RANKS: 8}
"""Cost of a stage, by the GPUs that it can use; its real duration depends on the experiment."""


def order_stages(stages: Mapping[str, Stage]) -> list[str]:
    """Order stages: each stage after the stages that it reads, and long paths first.

    A path is a chain of stages that read each other; its length is the sum of their `COSTS`. Among the stages that can
    come next, the function first compares folders by the longest path that starts in a folder, then stages by the
    longest path that starts at a stage, then by their own cost.

    Args:
        stages: Stages by name.

    Raises:
        ConfigError: If stages read an unknown stage, or each other.
    """
    lengths: dict[str, int] = {}
    for name in reversed(_after_their_reads(stages, dict.fromkeys(stages, 0))):
        later = (length for other, length in lengths.items() if name in stages[other].reads)
        lengths[name] = COSTS[stages[name].gpus] + max(later, default=0)
    folders = {name: type(stage).__module__.rpartition(".")[0] for name, stage in stages.items()}
    longest = {
        folder: max(lengths[name] for name, place in folders.items() if place == folder) for folder in folders.values()
    }
    own = {name: COSTS[stage.gpus] for name, stage in stages.items()}
    return _after_their_reads(stages, {name: (longest[folders[name]], lengths[name], own[name]) for name in lengths})


def _after_their_reads(stages: Mapping[str, Stage], priorities: Mapping[str, Any]) -> list[str]:
    """Order stages: each stage after the stages that it reads, otherwise high priorities first."""
    order: list[str] = []
    while others := [name for name in stages if name not in order]:
        if not (ready := [name for name in others if set(stages[name].reads) <= set(order)]):
            unknown = sorted(set(stages[others[0]].reads) - set(order))
            raise ConfigError(f"stages/.../{others[0]}.py: reads {', '.join(unknown)}: unknown, or reading it in turn")
        order.append(max(ready, key=lambda name: priorities[name]))
    return order


def _all_stages() -> dict[str, Stage]:
    """Load the stages in their order, each from a file X.py in `stages/` next to its X_job.py."""
    packages = {
        file.stem: folder for folder in variants.list_subpackages("stages") for file in variants.list_files(folder)
    }
    stages = {
        name: create_stage(variants.import_file(package, name))
        for name, package in packages.items()
        if f"{name}_job" in packages
    }
    return {name: stages[name] for name in order_stages(stages)}


STAGES = _all_stages()
"""All stages by name, in their order."""

STAGE_NAMES = tuple(STAGES)

RESOURCE_KEYS = tuple(
    place
    for name, stage in STAGES.items()
    for place in (name, *(key for key, kind in stage.other_kinds.items() if kind.gpus is not stage.gpus))
)
"""Stages, and units with other GPUs than the rest of their stage, for which a site can set resources."""


def plan_units(experiment: Experiment) -> list[PlannedUnit]:
    """List all units of an experiment, each after its inputs.

    Raises:
        ConfigError: If a unit reads an unknown or a later unit.

    Examples:
        >>> from hpcddm.loading.load_experiment import load_experiment
        >>> units = plan_units(load_experiment("quickstart", ("cluster.experts=2",)))
        >>> [unit.key for unit in units if unit.stage == "train"]
        ['train/monolith', 'train/expert-00', 'train/expert-01']
        >>> next(unit.requires for unit in units if unit.key == "router/all")
        ['catalog/all', 'expert_lists/all']
    """
    planned: dict[str, PlannedUnit] = {}
    keys = {name: stage.units(experiment) for name, stage in STAGES.items()}
    probes = set(keys[stage_of(PROBE)])
    for name, stage in STAGES.items():
        for key in keys[name]:
            planned[key] = _planned(experiment, stage.kind(key), key, planned, probes)
    return list(planned.values())


def _planned(
    experiment: Experiment, kind: UnitKind, key: str, earlier: Mapping[str, PlannedUnit], probes: Container[str]
) -> PlannedUnit:
    requires, counted, extras = kind.requires(experiment, key), kind.optional(experiment), kind.extras(experiment)
    optional = [*counted, *extras]
    readable = [*requires, *optional]
    experts = [name for name in readable if name.startswith(EXPERT)]
    gates = {name: gate for name in experts if (gate := probe_key(name)) in probes and gate != key}
    for name in (*readable, *gates.values()):
        if name not in earlier:
            raise ConfigError(f"{key} reads {name}: unknown, of a stage that `reads` lacks, or behind it in `units`")
    return PlannedUnit(
        key,
        requires,
        flatten(kind.fingerprint_settings(experiment, key)),
        kind.site(experiment, key),
        {name: earlier[name].fingerprint_settings for name in optional},
        min(len(counted), experiment.evaluate.min_experts or len(counted)),
        tuple(extras),
        # A result does not depend on the probe, only whether it may be made.
        kind.parts(experiment, key) | dict.fromkeys(gates.values(), ""),
        tuple(kind.lengths(experiment, key)),
        gates,
    )


def needed_by(stage: str, units: Iterable[PlannedUnit]) -> set[str]:
    """Return the keys of a stage's units and of all their direct and indirect inputs.

    Args:
        stage: Name of the stage.
        units: All units of the experiment, as `plan_units` lists them.
    """
    needed: set[str] = set()
    for unit in reversed(list(units)):
        if unit.stage == stage or unit.key in needed:
            needed |= {unit.key, *unit.inputs}
    return needed


def is_collective(key: str) -> bool:
    """Return True if all ranks of a unit work and a later attempt continues the unit; False for non-unit jobs."""
    stage = STAGES.get(stage_of(key))
    return stage is not None and stage.is_collective


def kind_of(key: str) -> UnitKind:
    """Return the kind of a unit."""
    return STAGES[stage_of(key)].kind(key)


def batch_size(experiment: Experiment, key: str) -> int:
    """Return the number of images per training step of a unit over all ranks; 0 for a unit that does not train."""
    return kind_of(key).batch_size(experiment, key)


def usable_gpus(key: str, experiment: Experiment | None = None) -> GpuUse:
    """Return the GPUs that a unit can use; `GpuUse.NONE` for an unknown stage.

    Args:
        key: The unit, as `stage/unit`, or the name of a stage for its usual units.
        experiment: The experiment; None for the maximum over all experiments.
    """
    if stage_of(key) not in STAGES:
        return GpuUse.NONE
    kind = kind_of(key)
    return kind.usable_gpus(experiment) if experiment else kind.gpus
