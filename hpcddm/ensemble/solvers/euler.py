"""Euler's method: one velocity evaluation per step, first order."""

from collections.abc import Callable
from typing import ClassVar

import torch

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings."""

    native: ClassVar[bool] = False
    nfe_per_step: ClassVar[int] = 1


def step(settings: Settings, velocity: Callable, x: torch.Tensor, t: float, t_next: float) -> torch.Tensor:
    """Step x (N, C, H, W) from t to `t_next`; velocity: (x, t) -> (N, C, H, W)."""
    return x + (t_next - t) * velocity(x, t)
