"""The stages as data: inputs, outputs, units and fingerprint settings of each. Read this first.

The way of the data:

    shard --> encode --> cluster --> train (experts, monolith) --+--> evaluate --> report
      |                     +------> route (router) -------------+
      |                     +------> distill (student) ----------+
      +----------------------------> measuring (extractor, ------+
                                                     classifier)

The router waits for the experts where it is trained on their samples; the student always does.

Where several units could start, the first in the order of `STAGES` does: long ones stand before short ones.

A unit's key is `stage/unit`. A unit is complete if and only if its manifest exists and the manifest's
fingerprint fits: the settings that `fingerprint_settings` names and the digests of its inputs, which are the units
that `requires` names and, of those that `optional` names, the ones that are there.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.rundir import manifest
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.manifest import Manifest, flatten
from hpcddm.schema import VariantSettings, hashed

CLUSTER = "cluster/all"
ROUTER = "route/router"
EXTRACTOR, CLASSIFIER = "measuring/extractor", "measuring/classifier"
MONOLITH = "train/monolith"
EXPERT = "train/expert-"
"""Key of an expert without its number."""
STUDENT = "distill/student"
REPORT = "report/all"
DATA_STAGES = ("shard", "encode", "cluster")
"""Every site makes these for itself: they are functions of the data, bit for bit."""


def expert_key(index: int) -> str:
    """Return the key of the unit that trains expert `index`."""
    return f"{EXPERT}{index:02d}"


def expert_number(key: str) -> int | None:
    """Return the number of the expert that the unit `key` trains; None for any other unit."""
    return int(key.removeprefix(EXPERT)) if key.startswith(EXPERT) else None


def expert_keys(experiment: Experiment) -> list[str]:
    """List the units that train the experts, in the order of their numbers."""
    return [expert_key(index) for index in range(experiment.cluster.experts)]


def missing_experts(experiment: Experiment, there: Container[str]) -> list[str]:
    """List the units of the experts that are not in `there`."""
    return [key for key in expert_keys(experiment) if key not in there]


def shard_keys(experiment: Experiment) -> list[str]:
    """List the units that write the tars: training images first, then held-out ones."""
    training = [f"shard/train-{part:03d}" for part in range(experiment.data.shards)]
    return training + [f"shard/heldout-{part:03d}" for part in range(experiment.data.heldout_shards)]


def class_names(experiment: Experiment, shards: Mapping[str, Manifest]) -> list[str]:
    """List the classes' names, by the manifests of the shards; numbers where the images came without names."""
    names = next((shards[key].results.get("class_names", []) for key in shard_keys(experiment) if key in shards), [])
    numbers = range(experiment.data.num_classes)
    return [names[number] if number < len(names) else str(number) for number in numbers]


def stored_class_names(experiment: Experiment, run: RunDir) -> list[str]:
    """List the class names of a run, by the first shard's manifest; numbers where it is missing."""
    shards = {key: manifest.read(run.unit(key)) for key in shard_keys(experiment)[:1]}
    return class_names(experiment, {key: shard for key, shard in shards.items() if shard is not None})


def train_keys(experiment: Experiment) -> list[str]:
    """List the training units: the monolith, which takes longest, then the experts."""
    return [*_monolith_keys(experiment), *expert_keys(experiment)]


def evaluate_keys(experiment: Experiment) -> list[str]:
    """List the units of evaluate: ranges of samples in whole batches, named by the ranges, so they never collide."""
    settings = experiment.evaluate
    batches = settings.images // settings.batch
    edges = [batches * part // settings.units * settings.batch for part in range(settings.units + 1)]
    return [f"evaluate/{start:07d}-{stop:07d}" for start, stop in zip(edges, edges[1:], strict=False)]


def evaluate_range(key: str) -> tuple[int, int]:
    """Parse the samples [start, stop) of a unit of the stage evaluate."""
    start, stop = key.split("/")[1].split("-")
    return int(start), int(stop)


def student_keys(experiment: Experiment) -> list[str]:
    """List the student's unit, where there is one."""
    return [STUDENT] if experiment.distill else []


def _monolith_keys(experiment: Experiment) -> list[str]:
    return [MONOLITH] if experiment.monolith.enabled else []


def _needed_to_sample(experiment: Experiment) -> list[str]:
    """List the units that the evaluation reads beside the experts."""
    dense = [*_monolith_keys(experiment), *student_keys(experiment)]
    return [*shard_keys(experiment), CLUSTER, *dense, ROUTER, EXTRACTOR, CLASSIFIER]


def _needed_to_route(experiment: Experiment) -> list[str]:
    experts = expert_keys(experiment) if experiment.router.samples else []
    return [*shard_keys(experiment), CLUSTER, *experts]


def _needed_to_distill(experiment: Experiment) -> list[str]:
    router = [ROUTER] if experiment.distill and experiment.distill.teacher == "router" else []
    return [*shard_keys(experiment), CLUSTER, *expert_keys(experiment), *router]


def _images(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of the images, which shape every network."""
    data = experiment.data
    return {"image_size": data.image_size, "channels": data.channels, "num_classes": data.num_classes}


def _shape(experiment: Experiment, model: VariantSettings | None = None) -> dict[str, Any]:
    """Return fingerprint settings of all but the measuring networks; prompts only where a model sees them."""
    data, shape = experiment.data, _images(experiment)
    if getattr(model, "condition", None) == "text":
        shape["text"] = hashed(data.text)
    return {"data": shape, "seed": experiment.seed}


def _expert_settings(experiment: Experiment, expert: int | None) -> dict[str, Any]:
    """Return the training settings of one denoiser, without the overrides of other experts."""
    config, experts = experiment.expert_config(expert), experiment.experts
    settings = hashed(experts)
    del settings["overrides"]
    return settings | {
        "model": hashed(config.model),
        "objective": hashed(config.objective),
        "training": settings["training"] | {"precision": config.precision},
        "init_from": hashed(config.init_from) if config.init_from else None,
    }


def _measuring_settings(experiment: Experiment, key: str) -> dict[str, Any]:
    name = key.split("/")[1]
    # Not the experiment's seed: distances by different rulers could not be compared.
    return {"data": _images(experiment), f"measuring.{name}": hashed(getattr(experiment.measuring, name))}


def _train_settings(experiment: Experiment, key: str) -> dict[str, Any]:
    expert = expert_number(key)
    fingerprint_settings = _shape(experiment, experiment.expert_config(expert).model) | {
        "experts": _expert_settings(experiment, expert),
        "cluster.experts": experiment.cluster.experts,
    }
    if key == MONOLITH:
        # The monolith gets the images that the router's FLOPs buy, and those of experts of other sizes.
        router, training = experiment.router, experiment.router.training
        bought = {"images": training.images, "batch": training.batch} if training else {}
        if router.samples:
            bought["samples"] = hashed(router.samples)
        if router.refit:
            bought["refit"] = True
        fingerprint_settings["router"] = {"model": hashed(router.model)} | bought
        fingerprint_settings["experts.overrides"] = _other_models(experiment)
    return fingerprint_settings


def _route_settings(experiment: Experiment, key: str) -> dict[str, Any]:
    fingerprint_settings = {
        "router": hashed(experiment.router),
        "experts.condition_dropout": experiment.experts.condition_dropout,
    }
    if experiment.router.samples:
        fingerprint_settings["evaluate.conversion"] = hashed(experiment.evaluate.conversion)
    return _shape(experiment, experiment.router.model) | fingerprint_settings


def _other_models(experiment: Experiment) -> list[dict[str, Any]]:
    changed = [override for override in experiment.experts.overrides if override.model is not None]
    return [{"clusters": override.clusters, "model": hashed(override.model)} for override in changed]


def _distill_settings(experiment: Experiment, key: str) -> dict[str, Any]:
    objectives = [
        hashed(override.objective) for override in experiment.experts.overrides if override.objective is not None
    ]
    fingerprint_settings = {
        "distill": hashed(experiment.distill),
        "experts": _expert_settings(experiment, None),
        "experts.overrides": [*_other_models(experiment), *objectives],
        "evaluate.conversion": hashed(experiment.evaluate.conversion),
    }
    if experiment.distill.teacher == "router":
        fingerprint_settings["router.model"] = hashed(experiment.router.model)
    return _shape(experiment, experiment.expert_config().model) | fingerprint_settings


def _evaluate_settings(experiment: Experiment, key: str) -> dict[str, Any]:
    evaluate = hashed(experiment.evaluate)
    evaluate["strategies"] = [
        plugins.parse("ensemble/strategies", name).label for name in experiment.evaluate.strategies
    ]
    if key != REPORT:
        # The samples of a range do not depend on how many ranges there are.
        del evaluate["images"]
    # How weights are read is no part of them: a network of another objective may have the same tensors, and so may a
    # router of another temperature.
    configs = [experiment.expert_config(expert) for expert in (None, *range(experiment.cluster.experts))]
    objectives = [hashed(config.objective) for config in configs]
    expert_objectives = [] if all(objective == objectives[0] for objective in objectives) else objectives[1:]
    shown = {"experts.objective": objectives[0], "monolith": hashed(experiment.monolith)}
    shown["router.model"] = hashed(experiment.router.model)
    return _shape(experiment) | {"evaluate": evaluate, "objectives": expert_objectives} | shown


class Gpus(StrEnum):
    """GPUs that a stage can use."""

    NONE = "none"
    ONE = "one, that of its only working rank"
    NODE = "all of one node"
    RANKS = "one for every rank"


@dataclass(frozen=True)
class Stage:
    """One stage; its code is `stages/<name>.py`."""

    name: str
    inputs_doc: str
    outputs_doc: str
    units: Callable[[Experiment], list[str]]
    requires: Callable[[Experiment, str], list[str]]
    fingerprint_settings: Callable[[Experiment, str], dict[str, Any]]
    optional: Callable[[Experiment], list[str]] = lambda experiment: []
    """Earlier units of which `evaluate.min_experts` are enough."""
    gpus: Gpus = Gpus.NONE
    """GPUs that it can use at most."""
    gpus_of: Callable[[Experiment], Gpus] | None = None
    """GPUs that it can use in one experiment, where those may be fewer."""


def _gpus_to_sample(experiment: Experiment) -> Gpus:
    return Gpus.NODE if experiment.evaluate.placement.uses_all_gpus else Gpus.ONE


STAGES = (
    Stage(
        "shard",
        "images",
        "one WebDataset tar and its byte-offset index per unit",
        units=shard_keys,
        requires=lambda experiment, key: [],
        fingerprint_settings=lambda experiment, key: {"data": hashed(experiment.data)},
    ),
    Stage(
        "encode",
        "one tar",
        "features (HDF5)",
        units=lambda experiment: [key.replace("shard/", "encode/") for key in shard_keys(experiment)],
        requires=lambda experiment, key: [key.replace("encode/", "shard/")],
        fingerprint_settings=lambda experiment, key: {"encode": hashed(experiment.encode)},
        gpus=Gpus.ONE,
        gpus_of=lambda experiment: Gpus.ONE if experiment.encode.encoder.uses_gpu else Gpus.NONE,
    ),
    Stage(
        "cluster",
        "all features",
        "centroids, a cluster id for every image, one sample list per expert",
        units=lambda experiment: [CLUSTER],
        requires=lambda experiment, key: (
            shard_keys(experiment) + [shard.replace("shard/", "encode/") for shard in shard_keys(experiment)]
        ),
        fingerprint_settings=lambda experiment, key: {"cluster": hashed(experiment.cluster), "seed": experiment.seed},
    ),
    Stage(
        "measuring",
        "tars",
        "the extractor of the distances, and the classifier of samples",
        units=lambda experiment: [EXTRACTOR, CLASSIFIER],
        requires=lambda experiment, key: shard_keys(experiment),
        fingerprint_settings=_measuring_settings,
        gpus=Gpus.RANKS,
    ),
    Stage(
        "train",
        "tars and one sample list",
        "EMA weights (safetensors), loss curve",
        units=train_keys,
        requires=lambda experiment, key: [*shard_keys(experiment), CLUSTER],
        fingerprint_settings=_train_settings,
        gpus=Gpus.RANKS,
    ),
    Stage(
        "route",
        "tars and cluster ids",
        "router weights, accuracy by noise level",
        units=lambda experiment: [ROUTER],
        requires=lambda experiment, key: _needed_to_route(experiment),
        fingerprint_settings=_route_settings,
        gpus=Gpus.RANKS,
        gpus_of=lambda experiment: Gpus.RANKS if experiment.router.model.trained else Gpus.ONE,
    ),
    Stage(
        "distill",
        "tars, cluster ids, all experts",
        "EMA weights of one dense student, loss curve",
        units=student_keys,
        requires=lambda experiment, key: _needed_to_distill(experiment),
        fingerprint_settings=_distill_settings,
        gpus=Gpus.RANKS,
    ),
    Stage(
        "evaluate",
        "all models",
        "samples and their statistics, per arm",
        units=evaluate_keys,
        requires=lambda experiment, key: _needed_to_sample(experiment),
        fingerprint_settings=_evaluate_settings,
        optional=expert_keys,
        gpus=Gpus.NODE,
        gpus_of=_gpus_to_sample,
    ),
    Stage(
        "report",
        "all manifests, statistics and samples",
        "index.html, metrics.json",
        units=lambda experiment: [REPORT],
        requires=lambda experiment, key: [*_needed_to_sample(experiment), *evaluate_keys(experiment)],
        fingerprint_settings=lambda experiment, key: _evaluate_settings(experiment, key) | {"name": experiment.name},
        optional=expert_keys,
        gpus=Gpus.NODE,
        gpus_of=_gpus_to_sample,
    ),
)


def gpus_of(stage: str, experiment: Experiment | None = None) -> Gpus:
    """Return the GPUs that a stage can use, in this experiment or at most; NONE for unknown stages."""
    definition = next((entry for entry in STAGES if entry.name == stage), None)
    if definition is None:
        return Gpus.NONE
    return definition.gpus_of(experiment) if definition.gpus_of and experiment else definition.gpus


STAGE_NAMES = tuple(stage.name for stage in STAGES)

TABLE = "table/all"
"""The last job of a sweep, which is no unit of any run: it compares what is complete by then."""

CONTINUATION = "submission/all"
"""The last job of a submission for which the queue had no room, which is no unit either: it submits the rest."""

OTHER_STAGES = (TABLE.split("/")[0], CONTINUATION.split("/")[0])
"""Stages of jobs that are no units of the pipeline."""


@dataclass(frozen=True)
class PlannedUnit:
    """One unit of an experiment: what it needs, and the settings under its fingerprint."""

    key: str
    num_units: int
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
        return self.key.split("/")[0]

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
    for stage in STAGES:
        keys = stage.units(experiment)
        optional = {key: planned[key].fingerprint_settings for key in stage.optional(experiment)}
        min_optional = min(len(optional), experiment.evaluate.min_experts or len(optional))
        for key in keys:
            fingerprint_settings = flatten(stage.fingerprint_settings(experiment, key))
            requires = stage.requires(experiment, key)
            planned[key] = PlannedUnit(
                key, len(keys), requires, fingerprint_settings, _site(experiment, key), optional, min_optional
            )
    return list(planned.values())


def _site(experiment: Experiment, key: str) -> str | None:
    expert = expert_number(key)
    if expert is not None:
        return experiment.experts.sites[expert] if experiment.experts.sites else None
    return None if key.split("/")[0] in DATA_STAGES else experiment.site
