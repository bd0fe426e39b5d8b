"""Draw samples from a velocity field."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch

from hpcddm.config import variants
from hpcddm.config.sampling import SamplerSettings
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.diffusion.spaces.base import Space
from hpcddm.errors import UserError
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import INITIAL_NOISE
from hpcddm.sampling import native_sampler
from hpcddm.sampling.denoiser_velocity import Condition
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
    """Draw x of images on the device of `condition`, restricted by `Space.finish` to the values that images can have.

    Args:
        field: Velocity field of an ensemble or of one model.
        seed: Seed of the random numbers.
        indices: Numbers of the N images; with the seed they determine the initial noise and all other random numbers.
        condition: (N, ...) conditions.
        space: Space of x.
        sampler: Settings of the sampler.

    Returns:
        (N, C, H, W) x.

    Raises:
        ConfigError: A native solver is combined with several models.
        UserError: A sample is not finite; clamped, it would be an image.
    """
    start = keyed.gaussian(seed, INITIAL_NOISE, indices, space.shape).to(condition.device)
    x = integrate(field, start, SampleStream(seed, indices), condition, sampler)
    finite = x.isfinite().flatten(1).all(1)
    if not finite.all():
        arm, number = getattr(field, "arm", "samples"), indices[int(finite.int().argmin())]
        raise UserError(f"{arm}: sample {number} is NaN or infinite; lower evaluate.guidance, or look at its network")
    return space.finish(x)


def integrate(
    field: VelocityField,
    start: Images,
    stream: SampleStream,
    condition: Condition,
    sampler: SamplerSettings,
) -> Images:
    """Integrate noise at t = 1 to data at t = 0, in the floating-point type of `start`.

    Args:
        field: Function (x, t, condition, context) -> velocity of the linear path.
        start: (N, C, H, W) noise.
        stream: Seed and image numbers of the batch.
        condition: (N, ...) conditions.
        sampler: Settings of the sampler: steps, time shift, solver.

    Returns:
        (N, C, H, W) x at t = 0, before `Space.finish`.

    Examples:
        >>> data = torch.full((2, 1, 4, 4), 3.0)
        >>> def field(x, t, condition, context):  # all paths end at `data`
        ...     return (x - data) / t.view(-1, 1, 1, 1)
        >>> settings, stream = SamplerSettings(steps=4), SampleStream(seed=0, indices=[0, 1])
        >>> x = integrate(field, torch.zeros(2, 1, 4, 4), stream, torch.zeros(2), settings)
        >>> torch.allclose(x, data)
        True
    """
    time_steps = time_grid(sampler.steps, sampler.shift)
    if sampler.solver.native:
        return native_sampler.integrate(field, start, stream, condition, time_steps, sampler.solver)
    solver, x = variants.create(Solver, sampler.solver), start
    for step, (t, t_next) in enumerate(pairwise(time_steps)):
        x = solver.step(partial(_evaluate_velocity, field, stream, condition, step), x, t, t_next)
    return x


def time_grid(steps: int, shift: float = 1.0) -> list[float]:
    """Return `steps` + 1 times from 1 to 0: t = s u / (1 + (s - 1) u) with equally spaced u.

    A shift s lowers every log-SNR, 2 log((1 - t) / t), by 2 log s (arXiv 2403.03206, eq. 23).

    Args:
        steps: Number of steps.
        shift: Shift s > 0; the default 1 gives equally spaced times.

    Examples:
        >>> time_grid(4)
        [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    # Not 1 - step / steps, which makes 0.19999999999999996 of the 0.2 that a setting names.
    levels = [(steps - step) / steps for step in range(steps + 1)]
    return [shift * u / (1 + (shift - 1) * u) for u in levels]


def _evaluate_velocity(
    field: VelocityField, stream: SampleStream, condition: Condition, step: int, x: Images, time: float
) -> Images:
    t = torch.full((len(x),), time, dtype=x.dtype, device=x.device)
    return field(x, t, condition, StepContext(stream, step, time))
