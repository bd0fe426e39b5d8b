"""Euler's method: one look at the velocity per step, first order."""

from collections.abc import Callable
from typing import ClassVar

import torch

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Nothing to set."""

    native: ClassVar[bool] = False
    nfe_per_step: ClassVar[int] = 1


def step(settings: Settings, velocity: Callable, x: torch.Tensor, t: float, t_next: float) -> torch.Tensor:
    """From x (N, C, H, W) at t to `t_next`; velocity: function (x, t) -> (N, C, H, W)."""
    return x + (t_next - t) * velocity(x, t)
