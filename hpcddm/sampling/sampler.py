"""Samples from a velocity field."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch

from hpcddm.config import variants
from hpcddm.config.sampling import SamplerSettings
from hpcddm.config.spaces import SpaceSettings
from hpcddm.data import draws
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.diffusion.spaces.base import Space
from hpcddm.sampling import native
from hpcddm.sampling.denoiser import Condition
from hpcddm.sampling.solvers.base import Solver
from hpcddm.sampling.step_context import SampleStream, StepContext
from hpcddm.sampling.velocity import VelocityField


@torch.no_grad()
def sample(
    field: VelocityField,
    seed: int,
    indices: Sequence[int],
    condition: Condition,
    space: Space[SpaceSettings],
    sampler: SamplerSettings,
) -> Images:
    """Draw x of images, finished as their space says, on the device of `condition`.

    indices: the images' numbers, which with the seed alone determine their initial noise and all other draws.
    Raises `ConfigError` when a native solver is given several models.
    """
    start = draws.gaussian(seed, "initial", indices, space.shape).to(condition.device)
    return space.finish(integrate(field, start, SampleStream(seed, indices), condition, sampler))


def integrate(
    field: VelocityField,
    start: Images,
    stream: SampleStream,
    condition: Condition,
    sampler: SamplerSettings,
) -> Images:
    """Integrate noise at t = 1 to data at t = 0, not finished, in the floating-point type of `start`."""
    time_steps = time_grid(sampler.steps, sampler.shift)
    if sampler.solver.native:
        return native.integrate(field, start, stream, condition, time_steps, sampler.solver)
    solver, x = variants.create(Solver, sampler.solver), start
    for step, (t, t_next) in enumerate(pairwise(time_steps)):
        x = solver.step(partial(_evaluate_velocity, field, stream, condition, step), x, t, t_next)
    return x


def time_grid(steps: int, shift: float = 1.0) -> list[float]:
    """Return `steps` + 1 times from 1 to 0: t = s u / (1 + (s - 1) u) with u equally spaced.

    A shift s lowers every log-SNR, 2 log((1 - t) / t), by 2 log s (arXiv 2403.03206, eq. 23).
    """
    # Not 1 - step / steps, which makes 0.19999999999999996 of the 0.2 that a setting names.
    levels = [(steps - step) / steps for step in range(steps + 1)]
    return [shift * u / (1 + (shift - 1) * u) for u in levels]


def _evaluate_velocity(
    field: VelocityField, stream: SampleStream, condition: Condition, step: int, x: Images, time: float
) -> Images:
    t = torch.full((len(x),), time, dtype=x.dtype, device=x.device)
    return field(x, t, condition, StepContext(stream, step, time))
