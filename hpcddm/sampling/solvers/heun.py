"""Heun's method: the mean of the velocities at both ends of a step, second order (arXiv 2206.00364, alg. 1)."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from hpcddm.config.sampling import SolverSettings
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.sampling.solvers.base import Solver


class HeunSettings(SolverSettings):
    """Variant without settings."""

    nfe_per_step: ClassVar[int] = 2


class Heun(Solver[HeunSettings]):
    """Heun's method with an Euler step at the end (alg. 1): no noise is left to predict at t = 0. Its order is two."""

    def step(self, velocity: Callable[[Tensor, float], Tensor], x: Images, t: float, t_next: float) -> Images:
        first = velocity(x, t)
        there = x + (t_next - t) * first
        if t_next == 0:
            return there
        return x + (t_next - t) * (first + velocity(there, t_next)) / 2
