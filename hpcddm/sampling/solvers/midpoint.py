"""The midpoint method: the velocity in the middle of a step, second order."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from hpcddm.config.sampling import SolverSettings
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.sampling.solvers.base import Solver


class MidpointSettings(SolverSettings):
    """Variant without settings."""

    nfe_per_step: ClassVar[int] = 2


class Midpoint(Solver[MidpointSettings]):
    """Solver of two velocity evaluations per step."""

    def step(self, velocity: Callable[[Tensor, float], Tensor], x: Images, t: float, t_next: float) -> Images:
        middle = (t + t_next) / 2
        return x + (t_next - t) * velocity(x + (middle - t) * velocity(x, t), middle)
