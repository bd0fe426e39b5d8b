"""Build routers and load their initial weights."""

from torch import nn

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.models import RouterModelSettings
from hpcddm.errors import require
from hpcddm.jobs.unit import Unit
from hpcddm.models import build_denoiser
from hpcddm.models.base import ComputedRouter, Router, TrainedRouter
from hpcddm.runs.initial_weights import InitRequest
from hpcddm.runs.unit_training import ResolvedTraining


def build(experiment: Experiment) -> Router[RouterModelSettings]:
    """Build a router, freshly initialised."""
    return variants.create(Router, experiment.router.model, experiment.data, experiment.cluster.experts)


def build_computed(experiment: Experiment) -> ComputedRouter[RouterModelSettings]:
    """Build a router that is computed instead of trained, before its `fit`."""
    return variants.create(ComputedRouter, experiment.router.model, experiment.data, experiment.cluster.experts)


def build_trainable(experiment: Experiment) -> TrainedRouter[RouterModelSettings]:
    """Build a trained router, freshly initialised; a refit freezes all parameters except the head."""
    router = _build_trained(experiment)
    if experiment.router.refit is not None:
        _freeze_body(router)
    return router


def build_initialised(
    experiment: Experiment, training: ResolvedTraining, unit: Unit
) -> TrainedRouter[RouterModelSettings]:
    """Build a router that is ready for training; a refit copies all parameters except the head and freezes them.

    Args:
        experiment: Settings of the experiment.
        training: Training of the router.
        unit: Unit of the router.

    Raises:
        UserError: A tensor in the file of the other router does not fit.
    """
    router = _build_trained(experiment)
    if training.start is not None:
        _copy_body(router, training.start, unit)
        _freeze_body(router)
    return router


def precision(experiment: Experiment) -> str:
    """Return the precision in which the router runs: that of its training, or fp32 if it is not trained."""
    return experiment.router.training.precision if experiment.router.training else "fp32"


def _build_trained(experiment: Experiment) -> TrainedRouter[RouterModelSettings]:
    return variants.create(TrainedRouter, experiment.router.model, experiment.data, experiment.cluster.experts)


def _copy_body(router: TrainedRouter[RouterModelSettings], request: InitRequest, unit: Unit) -> None:
    body = _body(router)
    with build_denoiser.open_initial_weights(request, unit) as (file, digest):
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
    """Return the parameters outside the head, by name."""
    head = router.head_parameters()
    return {name: parameter for name, parameter in router.named_parameters() if name not in head}
