"""Denoisers of the stages train and distill: building, initial weights and objective."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from hpcddm import initial_weights, plugins
from hpcddm.config import Experiment, ExpertConfig
from hpcddm.errors import UserError, require
from hpcddm.initial_weights import InitRequest
from hpcddm.models.base import Denoiser
from hpcddm.models.settings import DenoiserModelSettings
from hpcddm.objectives.base import Objective
from hpcddm.pipeline.keys import LATENT_SCALE
from hpcddm.pipeline.plan import init_request
from hpcddm.rundir import atomic, reading
from hpcddm.rundir.training_states import START
from hpcddm.runtime.unit import Unit
from hpcddm.spaces.settings import WHAT_X_IS

"""File that describes a unit's initial weights, whose own file may be gone when the unit is complete; no output."""


def build(settings: Experiment, config: ExpertConfig) -> Denoiser[DenoiserModelSettings]:
    """Build a denoiser, freshly initialised."""
    return plugins.create(Denoiser, config.model, settings.data)


def start(settings: Experiment, unit: Unit) -> Callable[[nn.Module], None] | None:
    """Return a function that fills the unit's denoiser with its initial weights; None where they stay random."""
    request = init_request(settings, unit.key)
    return None if request is None else partial(load_initial_weights, request=request, unit=unit)


def load_initial_weights(model: nn.Module, request: InitRequest, unit: Unit) -> None:
    """Copy weights from a file into a model: of every parameter and no others; its fixed buffers stay.

    Raises `UserError` naming the file, and the key or the tensor, when those weights are not the network's.
    """
    path, weights = read_initial_weights(request, unit)
    parameters = dict(model.named_parameters())
    unexpected = sorted(weights.keys() - model.state_dict().keys())
    missing = sorted(parameters.keys() - weights.keys())
    wrong = [name for name, value in parameters.items() if weights.get(name, value).shape != value.shape]
    first = next(iter([*missing, *unexpected, *wrong]), None)
    require(
        first is None,
        f"{path}: not the weights of this model ({len(missing)} tensors missing, {len(unexpected)} unknown,"
        f" {len(wrong)} of another shape, the first {first}); {request.advice}",
    )
    # The buffers are computed.
    model.load_state_dict({name: weights[name] for name in parameters}, strict=False)


def read_initial_weights(request: InitRequest, unit: Unit) -> tuple[Path, dict[str, torch.Tensor]]:
    """Read the file that a training starts from: its path and tensors; its description is stored for `started`.

    Raises `UserError` naming the file when it holds none, other ones than when the run was submitted, or another
    network's.
    """
    path = (unit.run.root / request.init_from.weights).resolve()
    try:
        weights, digest = load_file(path), atomic.sha256(path)
    except (OSError, SafetensorError) as error:
        raise UserError(initial_weights.unreadable(path, error)) from None
    is_same = request.init_from.content in (None, digest)
    require(is_same, f"{path}: has changed since the run was submitted; put it back, or submit again")
    description = initial_weights.described(path, initial_weights.header(path).description, digest)
    space = unit.inputs.get(LATENT_SCALE)
    initial_weights.check(request, path, description, space.digest_of(WHAT_X_IS) if space else None)
    if unit.ranks.rank == 0:
        atomic.write_json(unit.folder / START, initial_weights.record(path, description, digest))
    return path, weights


def started(settings: Experiment, unit: Unit) -> dict[str, Any]:
    """Return the manifest's record of the initial weights as {"start": ...}; empty where they were random."""
    record = reading.read_mapping(unit.folder / START) if init_request(settings, unit.key) else None
    return {} if record is None else {"start": record}


def objective_of(config: ExpertConfig) -> Objective:
    """Load the objective on which a denoiser is trained."""
    return plugins.create(Objective, config.objective)


def one_image(settings: Experiment) -> tuple[torch.Tensor, ...]:
    """Make the arguments of a denoiser, or of a router, for one image."""
    shape = settings.data.condition.shape
    condition = torch.zeros(1, *shape) if shape else torch.zeros(1, dtype=torch.long)
    return torch.zeros(1, *settings.data.x_shape), torch.zeros(1), condition
