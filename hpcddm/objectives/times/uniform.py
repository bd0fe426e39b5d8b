"""Uniform times over the schedule's range (arXiv 2501.05450, alg. 1; arXiv 2006.11239, alg. 1)."""

import torch

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings."""


def training_times(settings: Settings, uniform: torch.Tensor, lowest: float, highest: float) -> torch.Tensor:
    """Compute times (N,) in [lowest, highest) from uniform numbers (N,) in [0, 1)."""
    return lowest + (highest - lowest) * uniform
