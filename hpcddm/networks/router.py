"""Routers: building, initial weights, loading a finished one."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from hpcddm import initial_weights, plugins
from hpcddm.config import Experiment
from hpcddm.errors import require
from hpcddm.initial_weights import InitRequest
from hpcddm.models.base import ComputedRouter, Router, TrainedRouter
from hpcddm.models.calibrated import CalibratedRouter
from hpcddm.models.settings import RouterModelSettings
from hpcddm.networks import denoisers
from hpcddm.rundir import manifest, reading
from hpcddm.runtime.unit import Unit

CALIBRATION = "calibration.json"
"""File with the arguments of `CalibratedRouter`; missing where there is nothing to correct."""


def build(settings: Experiment) -> Router[RouterModelSettings]:
    """Build a router as it is before any training."""
    return plugins.create(Router, settings.router.model, settings.data, settings.cluster.experts)


def computed(settings: Experiment) -> ComputedRouter[RouterModelSettings]:
    """Build a router that is computed instead of trained, before it is computed."""
    return plugins.create(ComputedRouter, settings.router.model, settings.data, settings.cluster.experts)


def trainable(settings: Experiment) -> TrainedRouter[RouterModelSettings]:
    """Build a router whose body is frozen where it is refitted."""
    router = _trained(settings)
    if settings.router.refit is not None:
        _freeze_body(router)
    return router


def initial(settings: Experiment, unit: Unit) -> TrainedRouter[RouterModelSettings]:
    """Build a router ready to be trained: for a refit, all but the head copied and frozen.

    Raises `UserError` naming the file and the tensor when the other router's weights do not fit.
    """
    router = _trained(settings)
    request = initial_weights.router_request(settings)
    if request is not None:
        _copy_body(router, request, unit)
        _freeze_body(router)
    return router


def load(settings: Experiment, folder: Path, ready: Callable[[nn.Module, Path, str], nn.Module]) -> nn.Module:
    """Load the finished router of a unit's folder, calibrated where that is part of the result.

    ready: function (network, folder, precision) -> network with the folder's weights, where it is to run.
    Raises `UserError` when the calibration's bytes are not those that the manifest names.
    """
    router = ready(build(settings), folder, precision(settings))
    if CALIBRATION not in manifest.output_names(folder):
        return router
    calibration = reading.need_json(manifest.intact(folder, CALIBRATION))
    return CalibratedRouter(router, **calibration).eval()


def precision(settings: Experiment) -> str:
    """Return the precision in which the router runs: that of its training; fp32 where it was not trained."""
    return settings.router.training.precision if settings.router.training else "fp32"


def _trained(settings: Experiment) -> TrainedRouter[RouterModelSettings]:
    return plugins.create(TrainedRouter, settings.router.model, settings.data, settings.cluster.experts)


def _copy_body(router: TrainedRouter[RouterModelSettings], request: InitRequest, unit: Unit) -> None:
    path, stored = denoisers.read_initial_weights(request, unit)
    for name, parameter in _body(router).items():
        shape = stored.get(name, torch.empty(0)).shape
        require(
            shape == parameter.shape,
            f"{request.place}.weights: {path}: {name} is {list(shape)}, here it is {list(parameter.shape)};"
            f" {request.advice}",
        )
        parameter.data.copy_(stored[name])


def _freeze_body(router: TrainedRouter[RouterModelSettings]) -> None:
    for parameter in _body(router).values():
        parameter.requires_grad_(False)


def _body(router: TrainedRouter[RouterModelSettings]) -> dict[str, nn.Parameter]:
    """Return all parameters but the head's, by name."""
    head = router.head_parameters()
    return {name: parameter for name, parameter in router.named_parameters() if name not in head}
