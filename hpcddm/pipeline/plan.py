"""Graph of an experiment's units, from the stages' own files."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcddm.config import variant_files
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError
from hpcddm.pipeline.stage import Gpus, Stage, stage_in
from hpcddm.runs.initial_weights import InitRequest
from hpcddm.runs.manifest import Manifest, flatten
from hpcddm.runs.unit_keys import stage_of

ORDER = (
    *("shard", "catalog", "autoencoder", "encode", "latents", "latent_scale", "cluster", "assign", "lists"),
    *("inspect", "captions", "texts", "materialise"),
    *("measuring", "train", "route", "distill"),
    *("concept_words", "concept_vocabulary", "concept_mentions", "concept_tagger", "concept_tags", "concept_counts"),
    *("evaluate", "concept_scores", "concept_alignment", "concepts", "report"),
)
"""Where several units could start, the first in this order does: long ones before short ones."""


def _all_stages() -> dict[str, Stage]:
    """Load the stages, each a file X.py of `stages/` beside its X_job.py.

    Those that `ORDER` lacks follow the last that they read. Raises `ConfigError` for stages that read unknown ones, or
    each other.
    """
    rooms = {file.stem: room for room in variant_files.folders("stages") for file in variant_files.files(room)}
    names = [name for name in rooms if f"{name}_job" in rooms]
    stages = {name: stage_in(variant_files.module(rooms[name], name)) for name in names}
    order, others = list(ORDER), [name for name in names if name not in ORDER]
    while others:
        ready = [name for name in others if set(stages[name].reads) <= set(order)]
        if not ready:
            unknown = sorted(set(stages[others[0]].reads) - set(order))
            raise ConfigError(f"stages/.../{others[0]}.py: reads {', '.join(unknown)}: unknown, or reading it in turn")
        others.remove(ready[0])
        order.insert(max((order.index(name) for name in stages[ready[0]].reads), default=-1) + 1, ready[0])
    return {name: stages[name] for name in order}


STAGES = _all_stages()
"""All stages by name, in their order."""

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
    extras: tuple[str, ...] = ()
    """Optional units that do not count towards that number."""
    parts: dict[str, str] = field(default_factory=dict)
    """Parts of required units that alone count in its fingerprint, by key; '' where nothing of it does."""
    lengths: tuple[str, ...] = ()
    """Beginnings of its settings from which nothing but the number of images of its training follows."""

    @property
    def stage(self) -> str:
        """Name of its stage."""
        return stage_of(self.key)

    @property
    def inputs(self) -> list[str]:
        """Units that it may read, required and optional."""
        return [*self.requires, *self.optional]

    def counts(self, key: str) -> bool:
        """Tell if it reads a unit, and something of that is under its fingerprint; of a copy of samples nothing is."""
        return key in self.inputs and self.parts.get(key) != ""

    def expected(self, inputs: Mapping[str, Manifest]) -> Manifest:
        """Return the manifest that it should have with these inputs; its outputs are empty."""
        return Manifest.expected(self.key, self.fingerprint_settings, inputs, self.parts, self.lengths)

    def missing_inputs(self, gone: Container[str]) -> list[str]:
        """List the units in `gone` that it needs: required ones, and optional ones if too few of these remain."""
        counted = [key for key in self.optional if key not in self.extras]
        missing = [key for key in counted if key in gone]
        is_enough = len(counted) - len(missing) >= self.min_optional
        return [key for key in self.requires if key in gone] + ([] if is_enough else missing)


def plan(experiment: Experiment) -> list[PlannedUnit]:
    """List all units of an experiment, every one after those that it needs."""
    planned: dict[str, PlannedUnit] = {}
    for stage in STAGES.values():
        counted, extras = stage.optional(experiment), tuple(stage.extras(experiment))
        optional = {key: planned[key].fingerprint_settings for key in (*counted, *extras)}
        min_optional = min(len(counted), experiment.evaluate.min_experts or len(counted))
        for key in stage.units(experiment):
            settings = flatten(stage.fingerprint_settings(experiment, key))
            requires, site = stage.requires(experiment, key), stage.site(experiment, key)
            parts, lengths = stage.parts(experiment, key), tuple(stage.lengths(experiment, key))
            planned[key] = PlannedUnit(key, requires, settings, site, optional, min_optional, extras, parts, lengths)
    return list(planned.values())


def needed_by(stage: str, units: Iterable[PlannedUnit]) -> set[str]:
    """Return the keys of the units of a stage and of all that they read, directly or not; units: in their order."""
    needed: set[str] = set()
    for unit in reversed(list(units)):
        if unit.stage == stage or unit.key in needed:
            needed |= {unit.key, *unit.inputs}
    return needed


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
