"""Graph of an experiment's units, from the stages' own files."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from hpcddm import rooms
from hpcddm.config import Experiment
from hpcddm.initial_weights import InitRequest
from hpcddm.pipeline.cluster import ClusterStage
from hpcddm.pipeline.distill import DistillStage
from hpcddm.pipeline.encode import EncodeStage
from hpcddm.pipeline.evaluate import EvaluateStage
from hpcddm.pipeline.keys import stage_of
from hpcddm.pipeline.measuring import MeasuringStage
from hpcddm.pipeline.report import ReportStage
from hpcddm.pipeline.route import RouteStage
from hpcddm.pipeline.shard import ShardStage
from hpcddm.pipeline.stage import Gpus, Stage, stage_in
from hpcddm.pipeline.train import TrainStage
from hpcddm.rundir.manifest import flatten

BUILT_IN = (
    ShardStage(),
    EncodeStage(),
    ClusterStage(),
    MeasuringStage(),
    TrainStage(),
    RouteStage(),
    DistillStage(),
    EvaluateStage(),
    ReportStage(),
)


def _all_stages() -> dict[str, Stage]:
    """Return the stages by name; one that is only a file here and in `stages/` stands after the last that it reads."""
    stages: list[Stage] = list(BUILT_IN)
    made = {file.stem for file in rooms.files("stages")} - {"__init__", *(stage.name for stage in BUILT_IN)}
    for file in rooms.files("pipeline"):
        if file.stem in made:
            stage = stage_in(rooms.module("pipeline", file.stem))
            last = max((number for number, other in enumerate(stages) if other.name in stage.reads), default=-1)
            stages.insert(last + 1, stage)
    return {stage.name: stage for stage in stages}


STAGES = _all_stages()
"""All stages by name. Where several units could start, the first in this order does: long ones before short ones."""

STAGE_NAMES = tuple(STAGES)


@dataclass(frozen=True)
class PlannedUnit:
    """One unit of an experiment: what it needs, and the settings under its fingerprint."""

    key: str
    requires: list[str]
    fingerprint_settings: dict[str, Any]
    site: str | None
    """The site that the experiment gives it to; None means wherever the run is submitted."""
    optional: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Units that it reads when they are there, with the settings under their fingerprints."""
    min_optional: int = 0
    """Least number of optional units that it needs."""

    @property
    def stage(self) -> str:
        """Name of its stage."""
        return stage_of(self.key)

    @property
    def inputs(self) -> list[str]:
        """Units that it may read, required and optional."""
        return [*self.requires, *self.optional]

    def missing_inputs(self, gone: Container[str]) -> list[str]:
        """List the units in `gone` that it needs: required ones, and optional ones if too few of these remain."""
        missing = [key for key in self.optional if key in gone]
        is_enough = len(self.optional) - len(missing) >= self.min_optional
        return [key for key in self.requires if key in gone] + ([] if is_enough else missing)


def plan(experiment: Experiment) -> list[PlannedUnit]:
    """List all units of an experiment, every one after those that it needs."""
    planned: dict[str, PlannedUnit] = {}
    for stage in STAGES.values():
        optional = {key: planned[key].fingerprint_settings for key in stage.optional(experiment)}
        min_optional = min(len(optional), experiment.evaluate.min_experts or len(optional))
        for key in stage.units(experiment):
            settings = flatten(stage.fingerprint_settings(experiment, key))
            requires, site = stage.requires(experiment, key), stage.site(experiment, key)
            planned[key] = PlannedUnit(key, requires, settings, site, optional, min_optional)
    return list(planned.values())


def is_collective(key: str) -> bool:
    """Tell if all ranks of a unit work, which a later attempt then continues; False for jobs that are no units."""
    stage = STAGES.get(stage_of(key))
    return stage is not None and stage.is_collective


def batch_of(experiment: Experiment, key: str) -> int:
    """Return the images of one training step of a unit; 0, which all ranks can share, for units that do not train."""
    return STAGES[stage_of(key)].batch(experiment, key)


def gpus_of(stage: str, experiment: Experiment | None = None) -> Gpus:
    """Return the GPUs that a stage can use, in this experiment or at most; NONE for unknown stages."""
    if stage not in STAGES:
        return Gpus.NONE
    return STAGES[stage].gpus_in(experiment) if experiment else STAGES[stage].gpus


def init_request(experiment: Experiment, key: str) -> InitRequest | None:
    """Return the weights that the unit `key` starts from; None for random ones."""
    return STAGES[stage_of(key)].initial_weights(experiment, key)
