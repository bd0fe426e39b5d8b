"""Euler's method: one velocity evaluation per step, first order."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from hpcddm.config.sampling import SolverSettings
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.sampling.solvers.base import Solver


class EulerSettings(SolverSettings):
    """Variant without settings."""

    nfe_per_step: ClassVar[int] = 1


class Euler(Solver[EulerSettings]):
    """First-order solver: one velocity evaluation per step."""

    def step(self, velocity: Callable[[Tensor, float], Tensor], x: Images, t: float, t_next: float) -> Images:
        return x + (t_next - t) * velocity(x, t)
