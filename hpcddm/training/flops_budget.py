"""Budgets: FLOPs of every training and the images that they pay for, used by the stages, the report and `plan`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import ParamSpec

from torch import nn

from hpcddm.config.experiment import Experiment, ExpertConfig
from hpcddm.models import build_denoiser, build_router
from hpcddm.models.flops import forward_flops, training_flops, unallocated
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.stored_results import list_results
from hpcddm.runs.unit_keys import MONOLITH, ROUTER, expert_keys
from hpcddm.runs.unit_training import ResolvedTraining, resolve_training

P = ParamSpec("P")


def training_of(experiment: Experiment, key: str) -> ResolvedTraining:
    """Resolve a unit's training with all numbers for its loop; the monolith's length follows from its FLOPs.

    FLOPs per image are those of denoisers and router; trainings of other networks do not count here.

    Args:
        experiment: Settings of the experiment.
        key: Key of the unit.

    Raises:
        ConfigError: An expert's training is too short for its learning-rate schedule.
    """
    training = resolve_training(experiment, key)
    if training.config is not None:
        training = replace(training, flops_per_image=train_flops(experiment, training.config))
    elif key == ROUTER:
        training = replace(training, flops_per_image=router_train_flops(experiment))
    return _with_equal_flops(experiment, training) if key == MONOLITH else training


def _with_equal_flops(experiment: Experiment, monolith: ResolvedTraining) -> ResolvedTraining:
    """Set the monolith's images so that its training costs as many FLOPs as all experts and the router together.

    The same holds at every snapshot: the FLOPs are those of the matching snapshots of experts and router, or of the
    whole router if it has no snapshots.
    """
    experts, batch = [training_of(experiment, key) for key in expert_keys(experiment)], monolith.settings.batch

    def affordable_images(images: Iterable[int], router: int) -> int:
        spent = sum(count * expert.flops_per_image for count, expert in zip(images, experts, strict=True))
        return max(round((spent + router) / monolith.flops_per_image / batch), 1) * batch

    snapshots = zip(*(expert.settings.snapshots for expert in experts), _router_at_snapshots(experiment), strict=True)
    update = {
        "images": affordable_images((expert.settings.images for expert in experts), router_flops(experiment)),
        "snapshots": [affordable_images(images, router) for *images, router in snapshots],
    }
    return replace(monolith, settings=monolith.settings.model_copy(update=update))


def _router_at_snapshots(experiment: Experiment) -> list[int]:
    """Return the router's FLOPs at each of the experts' snapshots."""
    whole, fit = router_flops(experiment), router_fit_flops(experiment)
    if experiment.router.training is None or not experiment.router.training.snapshots:
        return [whole] * len(experiment.experts.training.snapshots)
    training = resolve_training(experiment, ROUTER).settings
    return [whole - fit + fit // training.images * images for images in training.snapshots]


def _count_once(count: Callable[P, int]) -> Callable[P, int]:
    """Remember what a function counted: a unit needs the same counts many times, and most experts are equal."""
    counts: dict[str, int] = {}

    @wraps(count)
    def counted(*settings: P.args, **named: P.kwargs) -> int:
        # Of a denoiser's settings only those of its network matter.
        key = repr([each.model if isinstance(each, ExpertConfig) else each for each in (*settings, *named.values())])
        if key not in counts:
            counts[key] = count(*settings, **named)
        return counts[key]

    return counted


def _of_one_image(experiment: Experiment, count: Callable[..., int], build: Callable[[], nn.Module]) -> int:
    return count(unallocated(build), *build_denoiser.one_image(experiment))


@_count_once
def train_flops(experiment: Experiment, config: ExpertConfig) -> int:
    """Count the FLOPs of one training image, forward and backward.

    Args:
        experiment: Settings of the experiment.
        config: Settings of the expert, monolith or student.
    """
    return _of_one_image(experiment, training_flops, lambda: build_denoiser.build(experiment, config))


@_count_once
def evaluation_flops(experiment: Experiment, config: ExpertConfig) -> int:
    """Count the FLOPs of one network evaluation on one image.

    Args:
        experiment: Settings of the experiment.
        config: Settings of the expert, monolith or student.
    """
    return _of_one_image(experiment, forward_flops, lambda: build_denoiser.build(experiment, config))


def _evaluations(experiment: Experiment, images: Iterable[int]) -> int:
    """Count the FLOPs of one evaluation of every expert on so many images, by the expert's number."""
    return sum(
        count * evaluation_flops(experiment, experiment.expert_config(expert)) for expert, count in enumerate(images)
    )


def teacher_flops(experiment: Experiment, inputs: Mapping[str, Manifest] | None = None) -> float:
    """Return the mean FLOPs of the student's teacher for one image.

    Args:
        experiment: Settings of the experiment.
        inputs: Manifests of the experts' lists, for the sizes of the clusters; without them clusters count equally.
    """
    numbers = range(experiment.cluster.experts)
    sizes = [list_results(inputs, number)["samples"] if inputs else 1 for number in numbers]
    experts = _evaluations(experiment, sizes) / sum(sizes)
    if experiment.student.teacher == "cluster":
        return experts
    return experts + _of_one_image(experiment, forward_flops, lambda: build_router.build(experiment))


def router_flops(experiment: Experiment) -> int:
    """Count the FLOPs that the ensemble spends on its router before it is used: training, and the samples for it.

    Here every expert draws equally many samples. If the experts draw different numbers, the manifest has the exact sum.
    """
    samples, experts = experiment.router.samples, experiment.cluster.experts
    return router_fit_flops(experiment) + router_samples_flops(experiment, [samples.images if samples else 0] * experts)


def router_fit_flops(experiment: Experiment) -> int:
    """Count the FLOPs of the router's training alone; in a refit the backward pass ends at the head."""
    if experiment.router.training is None:
        return 0
    return router_train_flops(experiment) * resolve_training(experiment, ROUTER).settings.images


@_count_once
def router_train_flops(experiment: Experiment) -> int:
    """Count the FLOPs of one training image of the router, forward and backward."""
    return _of_one_image(experiment, training_flops, lambda: build_router.build_trainable(experiment))


def router_samples_flops(experiment: Experiment, images: list[int]) -> int:
    """Count the FLOPs of drawing the images on which a router is trained.

    Args:
        experiment: Settings of the experiment.
        images: Number of images per expert.
    """
    samples = experiment.router.samples
    if samples is None:
        return 0
    return samples.steps * (1 if samples.guidance == 1 else 2) * _evaluations(experiment, images)
