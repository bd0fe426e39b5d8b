"""Build denoisers, load their initial weights, and create their objective."""

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
from hpcddm.config.spaces import SPACE_DIGEST
from hpcddm.diffusion.objectives.base import Objective
from hpcddm.errors import require
from hpcddm.errors.printing import printable
from hpcddm.files import atomic, checked_reads, tensors
from hpcddm.files.tensor_file import TensorFile, require_floats
from hpcddm.jobs.unit import Unit
from hpcddm.models.base import Denoiser
from hpcddm.runs import initial_weights
from hpcddm.runs.initial_weights import InitRequest
from hpcddm.runs.training_states import START, StartRecord
from hpcddm.runs.unit_keys import LATENT_SCALE
from hpcddm.runs.unit_training import ResolvedTraining


def build(experiment: Experiment, config: ExpertConfig) -> Denoiser[DenoiserModelSettings]:
    """Build a denoiser, freshly initialised.

    Args:
        experiment: Settings of the experiment.
        config: Settings of the expert, monolith or student.
    """
    return variants.create(Denoiser, config.model, experiment.data)


def initial_weights_loader(training: ResolvedTraining, unit: Unit) -> Callable[[nn.Module], None] | None:
    """Return a function that loads the initial weights of a unit into its denoiser; None for random initial weights."""
    return None if training.start is None else partial(load_initial_weights, request=training.start, unit=unit)


def load_initial_weights(model: nn.Module, request: InitRequest, unit: Unit) -> None:
    """Copy the weights of all parameters from a file into a model; buffers keep their computed values.

    Args:
        model: Network to fill.
        request: File of the weights, and the settings that name it.
        unit: Unit whose training starts from the weights.

    Raises:
        UserError: The file's tensors do not match the parameters of the network.
    """
    parameters = dict(model.named_parameters())
    with open_initial_weights(request, unit) as (file, digest):
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
def open_initial_weights(request: InitRequest, unit: Unit) -> Iterator[tuple[TensorFile, str]]:
    """Open the file with initial weights, check it, and record its description for `initial_weights_record`.

    Args:
        request: File of the weights, and the settings that name it.
        unit: Unit whose training starts from the weights.

    Yields:
        The open file and its SHA-256 digest.

    Raises:
        UserError: The file has no tensors, has changed since the run was submitted, or belongs to another network.
    """
    path, submitted = request.locate(unit.run.root)
    with initial_weights.open_weights(path) as file:
        digest = file.read({})
        atomic.require_submitted(path, submitted, digest)
        description = initial_weights.describe_network(path, initial_weights.read_description(file), digest)
        space = unit.inputs.get(LATENT_SCALE)
        initial_weights.check_description(request, path, description, space.digest_of(SPACE_DIGEST) if space else None)
        if unit.ranks.rank == 0:
            atomic.write_json(unit.folder / START, initial_weights.start_entry(path, description, digest))
        yield file, digest


def read_initial_weights(file: TensorFile, names: Collection[str], digest: str) -> dict[str, torch.Tensor]:
    """Read tensors from an open file with initial weights.

    Args:
        file: File from `open_initial_weights`.
        names: Names of the tensors.
        digest: Digest from `open_initial_weights`.

    Raises:
        UserError: A value is not finite.
    """
    require_floats(file, names)
    return tensors.read(file, names, digest)


def require_network(experiment: Experiment, config: ExpertConfig, path: Path) -> None:
    """Check that the tensors in a file of weights are the tensors of a denoiser of this experiment.

    Args:
        experiment: Settings of the experiment.
        config: Settings of the expert, monolith or student.
        path: File of the weights.

    Raises:
        UserError: A tensor is missing or has another dtype or shape.
    """
    with torch.device("meta"):
        network = build(experiment, config)
    with tensors.open_weights(path) as file:
        file.require(tensors.tensor_specs(network.state_dict()))


def initial_weights_record(training: ResolvedTraining, unit: Unit) -> dict[str, Any]:
    """Return the manifest's record of the initial weights as {"start": ...}; empty for random initial weights."""
    record = None if training.start is None else checked_reads.read_mapping(unit.folder / START, StartRecord)
    return {} if record is None else {"start": record}


def objective_of(config: ExpertConfig) -> Objective:
    """Create the objective of a denoiser."""
    return variants.create(Objective, config.objective)


def one_image(experiment: Experiment) -> tuple[torch.Tensor, ...]:
    """Create the arguments of a denoiser or a router for one image, filled with zeros: x, t and condition."""
    shape = experiment.data.condition.shape
    condition = torch.zeros(1, *shape) if shape else torch.zeros(1, dtype=torch.long)
    return torch.zeros(1, *experiment.data.x_shape), torch.zeros(1), condition
