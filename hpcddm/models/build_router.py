"""Routers: building, initial weights, loading a finished one."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field, FiniteFloat
from torch import nn

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.models import RouterModelSettings
from hpcddm.config.schema import StrictModel, validate
from hpcddm.errors import require
from hpcddm.jobs.unit import Unit
from hpcddm.models import build_denoiser
from hpcddm.models.base import ComputedRouter, Router, TrainedRouter
from hpcddm.models.calibrated import CalibratedRouter
from hpcddm.runs import initial_weights, manifest
from hpcddm.runs.files import CALIBRATION
from hpcddm.runs.initial_weights import InitRequest


class Calibration(StrictModel):
    """Content of the file."""

    log_prior: list[FiniteFloat]
    levels: list[FiniteFloat]
    temperatures: list[Annotated[FiniteFloat, Field(gt=0)]]


def build(settings: Experiment) -> Router[RouterModelSettings]:
    """Build a router as it is before any training."""
    return variants.create(Router, settings.router.model, settings.data, settings.cluster.experts)


def computed(settings: Experiment) -> ComputedRouter[RouterModelSettings]:
    """Build a router that is computed instead of trained, before it is computed."""
    return variants.create(ComputedRouter, settings.router.model, settings.data, settings.cluster.experts)


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
    place, experts = str(folder / CALIBRATION), settings.cluster.experts
    own = validate(Calibration, manifest.intact_json(folder, CALIBRATION), place)
    is_whole = len(own.log_prior) == experts and len(own.levels) == len(own.temperatures) > 1
    require(is_whole, f"{place}: is not of {experts} experts; fetch it again, or remove {folder}")
    return CalibratedRouter(router, own.log_prior, own.levels, own.temperatures).eval()


def precision(settings: Experiment) -> str:
    """Return the precision in which the router runs: that of its training; fp32 where it was not trained."""
    return settings.router.training.precision if settings.router.training else "fp32"


def _trained(settings: Experiment) -> TrainedRouter[RouterModelSettings]:
    return variants.create(TrainedRouter, settings.router.model, settings.data, settings.cluster.experts)


def _copy_body(router: TrainedRouter[RouterModelSettings], request: InitRequest, unit: Unit) -> None:
    body = _body(router)
    with build_denoiser.opened(request, unit) as (file, digest):
        for name, parameter in body.items():
            shape = list(file.forms[name].shape) if name in file.forms else [0]
            require(
                shape == list(parameter.shape),
                f"{request.place}.weights: {file.path}: {name} is {shape}, here it is {list(parameter.shape)};"
                f" {request.advice}",
            )
        stored = build_denoiser.read_initial_weights(file, body, digest)
    for name, parameter in body.items():
        parameter.data.copy_(stored[name])


def _freeze_body(router: TrainedRouter[RouterModelSettings]) -> None:
    for parameter in _body(router).values():
        parameter.requires_grad_(False)


def _body(router: TrainedRouter[RouterModelSettings]) -> dict[str, nn.Parameter]:
    """Return all parameters but the head's, by name."""
    head = router.head_parameters()
    return {name: parameter for name, parameter in router.named_parameters() if name not in head}
