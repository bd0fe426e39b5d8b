"""Stage draw: samples of every arm, in ranges."""

from collections.abc import Collection
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import parse_strategy
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.disk_sizes import values_per_image
from hpcddm.pipeline.fingerprints import common_settings
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.unit_keys import (
    CATALOG,
    EXPERT_LISTS,
    MONOLITH_ARM,
    ROUTER,
    STUDENT_ARM,
    monolith_keys,
    student_keys,
    unit_name,
)
from hpcddm.stages.unit_kinds import SamplingUnits, network_inputs


def draw_keys(experiment: Experiment) -> list[str]:
    """List the units of the stage: ranges of samples in whole batches, whose names are the ranges."""
    settings = experiment.evaluate
    batches = settings.images // settings.batch
    edges = [
        settings.first_sample + batches * part // settings.units * settings.batch for part in range(settings.units + 1)
    ]
    return [f"draw/{start:07d}-{stop:07d}" for start, stop in zip(edges, edges[1:], strict=False)]


def draw_range(key: str) -> tuple[int, int]:
    """Parse the range [start, stop) of samples, at the end of a unit's name."""
    start, stop = unit_name(key).rsplit("-", 2)[-2:]
    return int(start), int(stop)


def strategy_labels(experiment: Experiment) -> list[str]:
    """List the canonical names of the ensemble's strategies."""
    return [parse_strategy(name).label for name in experiment.evaluate.strategies]


def arm_names(experiment: Experiment) -> list[str]:
    """List the arms that sample images, dense models first."""
    dense = {MONOLITH_ARM: experiment.monolith.enabled, STUDENT_ARM: experiment.distill is not None}
    return [*(arm for arm, is_there in dense.items() if is_there), *strategy_labels(experiment)]


def sampling_units(experiment: Experiment) -> list[str]:
    """List the units that sampling reads, without the experts."""
    dense = [*monolith_keys(experiment), *student_keys(experiment)]
    return [CATALOG, EXPERT_LISTS, *network_inputs(experiment), *dense, ROUTER]


def evaluation_settings(experiment: Experiment, left_out: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings that determine the samples; left_out: keys of `evaluate` that do not matter."""
    evaluate = settings_to_hash(experiment.evaluate) | {"strategies": strategy_labels(experiment)}
    # The hashes of weights do not cover their use: networks with different objectives, or routers with different
    # temperatures, may have the same tensors.
    configs = [experiment.expert_config(expert) for expert in (None, *range(experiment.cluster.experts))]
    objectives = [settings_to_hash(config.objective) for config in configs]
    is_uniform = all(objective == objectives[0] for objective in objectives)
    return common_settings(experiment) | {
        "evaluate": {key: value for key, value in evaluate.items() if key not in left_out},
        "objectives": [] if is_uniform else objectives[1:],
        "experts.objective": objectives[0],
        "monolith": settings_to_hash(experiment.monolith),
        "router.model": settings_to_hash(experiment.router.model),
    }


class DrawStage(SamplingUnits, Stage):
    """Stage whose units draw one range of samples in all arms."""

    name = "draw"
    reads = (
        *("catalog", "autoencoder", "latents", "expert_lists", "encode_captions"),
        *("train", "probe", "router", "distill"),
    )

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges."""
        return draw_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return all networks but the experts, which are optional."""
        return sampling_units(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the evaluation except its first image and its length: samples depend only on their own range."""
        return evaluation_settings(experiment, ("images", "first_sample"))

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the images of all arms."""
        start, stop = draw_range(key)
        return DiskSpace(len(arm_names(experiment)) * (stop - start) * values_per_image(experiment), 0, 1)
