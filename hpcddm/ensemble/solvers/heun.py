"""Heun's method: the mean of the velocities at both ends of a step, second order (arXiv 2206.00364, alg. 1)."""

from collections.abc import Callable
from typing import ClassVar

import torch

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings."""

    native: ClassVar[bool] = False
    nfe_per_step: ClassVar[int] = 2


def step(settings: Settings, velocity: Callable, x: torch.Tensor, t: float, t_next: float) -> torch.Tensor:
    """Step x (N, C, H, W) from t to `t_next`; velocity: (x, t) -> (N, C, H, W).

    The last step is Euler's, as in alg. 1: at t = 0 there is no noise to predict. The order stays two.
    """
    first = velocity(x, t)
    there = x + (t_next - t) * first
    if t_next == 0:
        return there
    return x + (t_next - t) * (first + velocity(there, t_next)) / 2
