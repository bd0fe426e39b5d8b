"""Denoisers of the stages train and distill: building, initial weights and objective."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment, ExpertConfig
from hpcddm.config.models import DenoiserModelSettings
from hpcddm.config.spaces import WHAT_X_IS
from hpcddm.config.training import Expert
from hpcddm.diffusion.objectives.base import Objective
from hpcddm.errors import require
from hpcddm.errors.printing import printable
from hpcddm.files import atomic, reading, tensors
from hpcddm.files.tensor_file import TensorFile, require_floats
from hpcddm.jobs.unit import Unit
from hpcddm.models.base import Denoiser
from hpcddm.pipeline.plan import init_request
from hpcddm.runs import initial_weights
from hpcddm.runs.initial_weights import InitRequest
from hpcddm.runs.training_states import START, Started
from hpcddm.runs.unit_keys import LATENT_SCALE


def build(settings: Experiment, config: ExpertConfig) -> Denoiser[DenoiserModelSettings]:
    """Build a denoiser, freshly initialised."""
    return variants.create(Denoiser, config.model, settings.data)


def start(settings: Experiment, unit: Unit) -> Callable[[nn.Module], None] | None:
    """Return a function that fills the unit's denoiser with its initial weights; None where they stay random."""
    request = init_request(settings, unit.key)
    return None if request is None else partial(load_initial_weights, request=request, unit=unit)


def load_initial_weights(model: nn.Module, request: InitRequest, unit: Unit) -> None:
    """Copy weights from a file into a model: of every parameter and no others; its fixed buffers stay.

    Raises `UserError` naming the file, and the key or the tensor, when those weights are not the network's.
    """
    parameters = dict(model.named_parameters())
    with opened(request, unit) as (file, digest):
        unexpected = sorted(file.forms.keys() - model.state_dict().keys())
        missing = sorted(parameters.keys() - file.forms.keys())
        shapes = {name: form.shape for name, form in file.forms.items()}
        wrong = [name for name, value in parameters.items() if shapes.get(name, value.shape) != value.shape]
        first = next(iter([*missing, *unexpected, *wrong]), None)
        require(
            first is None,
            f"{file.path}: not the weights of this model ({len(missing)} tensors missing, {len(unexpected)} unknown,"
            f" {len(wrong)} of another shape, the first {first and printable(first)}); {request.advice}",
        )
        weights = read_initial_weights(file, parameters, digest)
    # The buffers are computed.
    model.load_state_dict(weights, strict=False)


@contextmanager
def opened(request: InitRequest, unit: Unit) -> Iterator[tuple[TensorFile, str]]:
    """Open the file that a training starts from, and hash it; its description is stored for `started`.

    Raises `UserError` naming the file when it holds no tensors, other ones than when the run was submitted, or another
    network's.
    """
    path = (unit.run.root / request.init_from.weights).resolve()
    with initial_weights.opened(path) as file:
        digest = file.read({})
        atomic.require_submitted(path, request.init_from.content, digest)
        description = initial_weights.described(path, initial_weights.description_of(file), digest)
        space = unit.inputs.get(LATENT_SCALE)
        initial_weights.check(request, path, description, space.digest_of(WHAT_X_IS) if space else None)
        if unit.ranks.rank == 0:
            atomic.write_json(unit.folder / START, initial_weights.record(path, description, digest))
        yield file, digest


def read_initial_weights(file: TensorFile, names: Collection[str], digest: str) -> dict[str, torch.Tensor]:
    """Read some tensors of the file that a training starts from; raises `UserError` for one that is not finite."""
    require_floats(file, names)
    return tensors.read(file, names, digest)


def require_network(settings: Experiment, expert: Expert | None, path: Path) -> None:
    """Raise `UserError` naming the first tensor in a file of weights that is another than a denoiser of ours has.

    expert: None for the monolith and the student.
    """
    with torch.device("meta"):
        network = build(settings, settings.expert_config(expert))
    with tensors.opened(path) as file:
        file.require(tensors.forms(network.state_dict()))


def started(settings: Experiment, unit: Unit) -> dict[str, Any]:
    """Return the manifest's record of the initial weights as {"start": ...}; empty where they were random."""
    record = reading.read_mapping(unit.folder / START, Started) if init_request(settings, unit.key) else None
    return {} if record is None else {"start": record}


def objective_of(config: ExpertConfig) -> Objective:
    """Load the objective on which a denoiser is trained."""
    return variants.create(Objective, config.objective)


def one_image(settings: Experiment) -> tuple[torch.Tensor, ...]:
    """Make the arguments of a denoiser, or of a router, for one image."""
    shape = settings.data.condition.shape
    condition = torch.zeros(1, *shape) if shape else torch.zeros(1, dtype=torch.long)
    return torch.zeros(1, *settings.data.x_shape), torch.zeros(1), condition
