"""DDIM, with eta = 1 DDPM's ancestral sampling, in one model's own coordinates (arXiv 2010.02502, eq. 12 and 16)."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from hpcddm.config.sampling import SolverSettings
from hpcddm.diffusion.objectives.conversions import Images, Level, scale_per_sample
from hpcddm.sampling.solvers.base import NativeSolver


class DdimSettings(SolverSettings):
    """Scale `eta` of the fresh noise in a step: 0 is DDIM, 1 is DDPM."""

    native: ClassVar[bool] = True
    nfe_per_step: ClassVar[int] = 1

    eta: Annotated[float, Field(ge=0, le=1)] = 0.0

    def check(self, experiment: Any) -> None:
        """Raise ValueError: an evaluation compares ensembles, and those live on the linear path."""
        raise ValueError(
            f"{self.name} walks in one model's own coordinates and has no strategies; take euler, heun or midpoint,"
            " and draw from one model alone: 'hpcddm sample' takes --solver ddim --strategy expert-0"
        )


class Ddim(NativeSolver[DdimSettings]):
    """Deterministic step of DDIM, or with fresh noise.

    For a state alpha x0 + sigma eps of any schedule the fresh noise has the variance
    eta^2 (sigma'^2 / sigma^2) (sigma^2 - (alpha / alpha')^2 sigma'^2), which is eq. 16 where alpha^2 + sigma^2 = 1.
    """

    def step(self, x0: Images, eps: Images, level: Level, next_level: Level, fresh: Callable[[], Tensor]) -> Images:
        alpha, sigma = level.alpha, level.sigma
        lost = sigma.square() - (alpha / next_level.alpha * next_level.sigma).square()
        variance = self.settings.eta**2 * (next_level.sigma / sigma).square() * lost.clamp(min=0)
        kept = (next_level.sigma.square() - variance).clamp(min=0).sqrt()
        there = scale_per_sample(next_level.alpha, x0) + scale_per_sample(kept, eps)
        return there + scale_per_sample(variance.sqrt(), fresh()) if self.settings.eta else there
