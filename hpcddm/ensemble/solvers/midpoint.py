"""The midpoint method: the velocity in the middle of a step, second order."""

from collections.abc import Callable
from typing import ClassVar

import torch

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings."""

    native: ClassVar[bool] = False
    nfe_per_step: ClassVar[int] = 2


def step(settings: Settings, velocity: Callable, x: torch.Tensor, t: float, t_next: float) -> torch.Tensor:
    """Step x (N, C, H, W) from t to `t_next`; velocity: (x, t) -> (N, C, H, W)."""
    middle = (t + t_next) / 2
    return x + (t_next - t) * velocity(x + (middle - t) * velocity(x, t), middle)
