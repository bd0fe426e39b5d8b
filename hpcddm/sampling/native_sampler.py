"""Sampling from one model on its training path, for comparison with its velocity on the linear path."""

from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float64
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.sampling import SolverSettings
from hpcddm.diffusion.objectives.base import LINEAR
from hpcddm.diffusion.objectives.conversions import Images, Level
from hpcddm.errors import ConfigError
from hpcddm.sampling.denoiser_velocity import Condition, DenoiserVelocity, guided_prediction
from hpcddm.sampling.solvers.base import NativeSolver
from hpcddm.sampling.step_context import SampleStream, StepContext
from hpcddm.sampling.velocity import EnsembleVelocity, VelocityField

HIGHEST = 1 - 1e-3
"""Last time at which a model is evaluated; at t = 1 a prediction of the noise is independent of the image."""


def integrate(
    field: VelocityField,
    start: Images,
    stream: SampleStream,
    condition: Condition,
    time_steps: list[float],
    settings: SolverSettings,
) -> Images:
    """Integrate a native state from the first time to the last, in the floating-point type of `start`.

    Args:
        field: Velocity field of an ensemble with one model.
        start: (N, C, H, W) native states at the first time.
        stream: Seed and image numbers of the batch.
        condition: (N, ...) conditions.
        time_steps: Decreasing times of the linear path; native times follow by equal log-SNR. A last time of 0 gives
            images.
        settings: Settings of the native solver.

    Returns:
        (N, C, H, W) native states at the last time.

    Raises:
        ConfigError: The field has more than one model.
    """
    if not isinstance(field, EnsembleVelocity) or len(field.experts) != 1 or field.experts[0] is None:
        raise ConfigError(
            f"{settings.name} walks in one model's own coordinates; draw from one alone (expert-0, monolith, student),"
            " or take the solver euler, heun or midpoint"
        )
    denoiser, solver, y = field.experts[0], variants.create(NativeSolver, settings), start
    for step, (t, t_next) in enumerate(pairwise(time_steps)):
        context = StepContext(stream, step, t)
        tau = _native_time(denoiser, t, y.device)
        inputs, scale = (y, tau.to(y).expand(len(y)), condition), field.guidance_at(t)
        if scale == 1:
            prediction = denoiser.model(*inputs)
        else:
            prediction = guided_prediction(denoiser.model, *inputs, field.null_of(condition), scale)
        x0, eps = denoiser.conversion.estimate(denoiser.objective, y, tau, prediction.to(y))
        level, next_level = denoiser.objective.level(tau), _level(denoiser, t_next, y.device)
        y = solver.step(x0, eps, level, next_level, partial(_fresh, context, y))
    return y


def _fresh(context: StepContext, like: Images) -> Images:
    return context.gaussian(like.shape[1:]).to(like)


def _native_time(denoiser: DenoiserVelocity, time: float, device: torch.device) -> Float64[Tensor, " 1"]:
    """Return the native time with the log-SNR of the linear path's `time`, at most the last valid one."""
    highest = min(HIGHEST, denoiser.conversion.valid_range(denoiser.objective)[1])
    return denoiser.objective.native_time(torch.tensor([time], dtype=torch.float64, device=device).clamp(max=highest))


def _level(denoiser: DenoiserVelocity, time: float, device: torch.device) -> Level:
    if time > 0:
        return denoiser.objective.level(_native_time(denoiser, time, device))
    # The end of the way is the image itself, which no table of levels contains.
    return LINEAR.level(torch.zeros(1, dtype=torch.float64, device=device))
