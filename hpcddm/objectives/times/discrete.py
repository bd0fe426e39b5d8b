"""Equally spaced times, all equally often, as in DDPM's training (arXiv 2006.11239, alg. 1)."""

import torch

from hpcddm.schema import Positive, VariantSettings


class Settings(VariantSettings):
    """Number of times `levels`: i / levels for i = 0 ... levels - 1."""

    levels: Positive = 1000


def training_times(settings: Settings, uniform: torch.Tensor, lowest: float, highest: float) -> torch.Tensor:
    """Compute times (N,) in [lowest, highest] from uniform numbers (N,) in [0, 1)."""
    return ((uniform * settings.levels).floor() / settings.levels).clamp(lowest, highest)
