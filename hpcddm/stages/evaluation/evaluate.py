"""Stage evaluate: samples of every arm, in ranges, beside as many held-out and training images."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.config.strategies import parse as parse_strategy
from hpcddm.pipeline.disk import values_per_image
from hpcddm.pipeline.fingerprints import SAMPLES, common_settings
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.unit_keys import (
    CATALOG,
    LISTS,
    MONOLITH_ARM,
    ROUTER,
    STUDENT_ARM,
    expert_keys,
    monolith_keys,
    name_of,
    student_keys,
)
from hpcddm.stages.data.captions import captions_read, uncounted_captions
from hpcddm.stages.data.latent_scale import space_keys, space_parts
from hpcddm.stages.training.measuring import measuring_keys

REFERENCE, REAL = "heldout", "train"
"""Arms of real images: the reference of all distances, and training images whose distance is the floor."""


def evaluate_keys(experiment: Experiment) -> list[str]:
    """List the units of the stage: ranges of samples in whole batches, whose names are the ranges."""
    settings = experiment.evaluate
    batches = settings.images // settings.batch
    edges = [settings.first + batches * part // settings.units * settings.batch for part in range(settings.units + 1)]
    return [f"evaluate/{start:07d}-{stop:07d}" for start, stop in zip(edges, edges[1:], strict=False)]


def evaluate_range(key: str) -> tuple[int, int]:
    """Parse the samples [start, stop) of a unit of the stage evaluate."""
    start, stop = name_of(key).split("-")
    return int(start), int(stop)


def strategy_labels(experiment: Experiment) -> list[str]:
    """List the canonical names of the ensemble's strategies."""
    return [parse_strategy(name).label for name in experiment.evaluate.strategies]


def arm_names(experiment: Experiment) -> list[str]:
    """List the arms that draw images, dense models first."""
    dense = {MONOLITH_ARM: experiment.monolith.enabled, STUDENT_ARM: experiment.distill is not None}
    return [*(arm for arm, is_there in dense.items() if is_there), *strategy_labels(experiment)]


def sampling_units(experiment: Experiment) -> list[str]:
    """List the units that drawing and measuring samples reads, beside the experts."""
    dense = [*monolith_keys(experiment), *student_keys(experiment)]
    shared = [*space_keys(experiment), *captions_read(experiment)]
    return [CATALOG, LISTS, *shared, *dense, ROUTER, *measuring_keys(experiment)]


def evaluation_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of which the samples and their measures are a function."""
    evaluate = hashed(experiment.evaluate) | {"strategies": strategy_labels(experiment)}
    # How weights are read is no part of them: a network of another objective may have the same tensors, and so may a
    # router of another temperature.
    configs = [experiment.expert_config(expert) for expert in (None, *range(experiment.cluster.experts))]
    objectives = [hashed(config.objective) for config in configs]
    is_uniform = all(objective == objectives[0] for objective in objectives)
    return common_settings(experiment) | {
        "evaluate": evaluate,
        "objectives": [] if is_uniform else objectives[1:],
        "experts.objective": objectives[0],
        "monolith": hashed(experiment.monolith),
        "router.model": hashed(experiment.router.model),
    }


def gpus_to_sample(experiment: Experiment) -> Gpus:
    """Return the GPUs that the placement of the networks can use."""
    return Gpus.NODE if experiment.evaluate.placement.uses_all_gpus else Gpus.ONE


class EvaluateStage(Stage):
    """A unit draws and measures one range of samples in all arms."""

    name = "evaluate"
    reads = (
        *("catalog", "autoencoder", "latent_scale", "lists", "captions", "texts"),
        *("measuring", "train", "route", "distill"),
    )
    gpus = Gpus.NODE

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges."""
        return evaluate_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return all networks but the experts, which are optional."""
        return sampling_units(experiment)

    def optional(self, experiment: Experiment) -> list[str]:
        """List the experts."""
        return expert_keys(experiment)

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples, not where they lie."""
        return SAMPLES | space_parts(experiment) | uncounted_captions(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the evaluation but where it begins and how long it is: samples depend on their own range alone."""
        settings = evaluation_settings(experiment)
        for key in ("images", "first"):
            settings["evaluate"].pop(key, None)
        return settings

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return the GPUs of the placement."""
        return gpus_to_sample(experiment)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate images, features and statistics of all arms, two of which are real images."""
        start, stop = evaluate_range(key)
        features = experiment.measuring.extractor.model.features
        per_image = values_per_image(experiment) + 4 * features + 1
        statistics = 8 * (features + 1) ** 2
        arms = len(arm_names(experiment)) + 2
        return DiskSpace(arms * ((stop - start) * per_image + statistics), 0, 1)
