"""Routers: building, loading a finished one, and FLOPs."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from hpcddm import initial_weights, plugins
from hpcddm.config import Experiment, Training
from hpcddm.initial_weights import InitRequest
from hpcddm.models.calibrated import CalibratedRouter
from hpcddm.models.flops import training_flops
from hpcddm.runtime.unit import Unit, require
from hpcddm.stages import denoisers, outputs

CALIBRATION = "calibration.json"
"""File with the arguments of `CalibratedRouter`; missing where there is nothing to correct."""


def build(settings: Experiment) -> nn.Module:
    """Build a router as it is before any training."""
    model = settings.router.model
    return plugins.load("models", model.name).build(model, settings.data, settings.cluster.experts)


def trainable(settings: Experiment) -> nn.Module:
    """Build a router whose body is frozen where it is refitted."""
    router = build(settings)
    if settings.router.refit is not None:
        _freeze_body(router)
    return router


def initial(settings: Experiment, unit: Unit) -> nn.Module:
    """Build a router ready to be trained: its prompts filled in, and for a refit all but the head copied and frozen.

    Raises `UserError` naming the file and the tensor when the other router's weights do not fit.
    """
    router = build(settings)
    denoisers.fill_prompts(router, settings.router.model, settings)
    if settings.router.refit is not None:
        _copy_body(router, initial_weights.init_request(settings, unit.key), unit)
        _freeze_body(router)
    return router


def load(settings: Experiment, folder: Path, ready: Callable[[nn.Module, Path, str], nn.Module]) -> nn.Module:
    """Load the finished router of a unit's folder, calibrated where that is part of the result.

    ready: function (network, folder, precision) -> network with the folder's weights, where it is to run.
    Raises `UserError` when the calibration's bytes are not those that the manifest names.
    """
    router = ready(build(settings), folder, precision(settings))
    if CALIBRATION not in outputs.names(folder):
        return router
    return CalibratedRouter(router, **json.loads(outputs.intact(folder, CALIBRATION).read_text())).eval()


def precision(settings: Experiment) -> str:
    """Return the precision in which the router runs: that of its training; fp32 where it was not trained."""
    return settings.router.training.precision if settings.router.training else "fp32"


def router_training(settings: Experiment) -> Training | None:
    """Return the router's training in whole batches; None for one that is not trained."""
    training = settings.router.training
    if training is None:
        return None
    return training.model_copy(update={"images": denoisers.whole_batches(training.images, training.batch)})


def router_flops(settings: Experiment) -> int:
    """Count the FLOPs of the router before it is used, which count for the ensemble: training and its samples.

    Of the samples every expert draws as many here; of experts that differ in size the manifest tells the exact sum.
    """
    samples, experts = settings.router.samples, settings.cluster.experts
    return fit_flops(settings) + sampling_flops(settings, [samples.images if samples else 0] * experts)


def fit_flops(settings: Experiment) -> int:
    """Count the FLOPs of the training alone; in a refit the backward pass ends at the head."""
    training = router_training(settings)
    if training is None:
        return 0
    return training_flops(trainable(settings), *denoisers.one_image(settings)) * training.images


def sampling_flops(settings: Experiment, images: list[int]) -> int:
    """Count the FLOPs of drawing so many images from each expert, for a router that is trained on them."""
    samples = settings.router.samples
    if samples is None:
        return 0
    nfe = samples.steps * (1 if samples.guidance == 1 else 2)
    each = denoisers.of_each(settings, range(len(images)), denoisers.sample_flops)
    return nfe * sum(count * flops for count, flops in zip(images, each, strict=True))


def _copy_body(router: nn.Module, request: InitRequest, unit: Unit) -> None:
    path, stored = denoisers.read_initial_weights(request, unit)
    for name, parameter in _body(router).items():
        shape = stored.get(name, torch.empty(0)).shape
        require(
            shape == parameter.shape,
            f"{request.place}.weights: {path}: {name} is {list(shape)}, here it is {list(parameter.shape)};"
            f" {request.advice}",
        )
        parameter.data.copy_(stored[name])


def _freeze_body(router: nn.Module) -> None:
    for parameter in _body(router).values():
        parameter.requires_grad_(False)


def _body(router: nn.Module) -> dict[str, nn.Parameter]:
    """Return all parameters but the head's, by name."""
    head = router.head_parameters()
    return {name: parameter for name, parameter in router.named_parameters() if name not in head}
