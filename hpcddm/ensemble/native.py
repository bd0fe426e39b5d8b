"""Sampling from one model on the path that it was trained on, for comparison with its velocity on the linear path."""

from functools import partial
from itertools import pairwise

import torch

from hpcddm import plugins
from hpcddm.ensemble.denoiser import Denoiser, guided_prediction
from hpcddm.ensemble.step_context import SampleStream, StepContext
from hpcddm.ensemble.velocity import EnsembleVelocity
from hpcddm.errors import ConfigError
from hpcddm.objectives import conversions
from hpcddm.objectives.base import LINEAR
from hpcddm.objectives.conversions import Level
from hpcddm.schema import VariantSettings

HIGHEST = 1 - 1e-3
"""Last time at which a model is evaluated: at t = 1 a prediction of the noise says nothing about the image."""


def integrate(
    field: EnsembleVelocity,
    start: torch.Tensor,
    stream: SampleStream,
    condition: torch.Tensor,
    time_steps: list[float],
    settings: VariantSettings,
) -> torch.Tensor:
    """Integrate a native state (N, C, H, W) from the first time to the last; `start` fixes the floating-point type.

    time_steps: of the linear path, falling; native times are those of the same log-SNR. A last time of 0 gives images.
    Raises `ConfigError` when the field has more than one model.
    """
    if len(field.experts) != 1:
        raise ConfigError(
            f"{settings.name} walks in one model's own coordinates; draw from one alone (expert-0, monolith, student),"
            " or take the solver euler, heun or midpoint"
        )
    (denoiser,), solver, y = field.experts, plugins.load("ensemble/solvers", settings.name), start
    for step, (t, t_next) in enumerate(pairwise(time_steps)):
        context = StepContext(stream, step, t)
        tau = _matched(denoiser, t, y.device)
        prediction = _predict(field, denoiser, y, tau.to(y).expand(len(y)), condition, t)
        estimates = _estimates(denoiser, y, tau, prediction.to(y))
        levels = denoiser.objective.level(tau), _level(denoiser, t_next, y.device)
        y = solver.step(settings, *estimates, *levels, partial(_fresh, context, y))
    return y


def _estimates(
    denoiser: Denoiser, y: torch.Tensor, tau: torch.Tensor, prediction: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x0, within the conversion's clamp, and the eps that goes with it at the state y."""
    x0, eps = denoiser.objective.estimate(y, tau, prediction)
    bound = denoiser.conversion.settings.x0_clamp
    if bound is None:
        return x0, eps
    level, clamped = conversions.floored(denoiser.objective.level(tau)), x0.clamp(-bound, bound)
    return clamped, eps + conversions.scale_per_sample(level.alpha / level.sigma, x0 - clamped)


def _fresh(context: StepContext, like: torch.Tensor) -> torch.Tensor:
    return context.gaussian(like.shape[1:]).to(like)


def _predict(
    field: EnsembleVelocity,
    denoiser: Denoiser,
    y: torch.Tensor,
    tau: torch.Tensor,
    condition: torch.Tensor,
    time: float,
) -> torch.Tensor:
    scale = field.guidance_at(time)
    if scale == 1:
        return denoiser.model(y, tau, condition)
    return guided_prediction(denoiser.model, y, tau, condition, field.null_of(condition), scale)


def _matched(denoiser: Denoiser, time: float, device: torch.device) -> torch.Tensor:
    """Return the native time (1,) with the log-SNR of the linear path's `time`, at most the last valid one."""
    highest = min(HIGHEST, denoiser.conversion.valid_range(denoiser.objective)[1])
    t = torch.tensor([time], dtype=torch.float64, device=device).clamp(max=highest)
    return denoiser.objective.schedule.time_at(LINEAR.log_snr(t))


def _level(denoiser: Denoiser, time: float, device: torch.device) -> Level:
    if time > 0:
        return denoiser.objective.level(_matched(denoiser, time, device))
    # The end of the way is the image itself, which no table of levels contains.
    return LINEAR.level(torch.zeros(1, dtype=torch.float64, device=device))
