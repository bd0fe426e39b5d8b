"""Logit-normal times: more often in the middle of the schedule's range than at its ends (arXiv 2403.03206, eq. 19)."""

from typing import Annotated

import torch
from pydantic import Field

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Mean and standard deviation of log(t / (1 - t)); a positive mean prefers noise."""

    mean: float = 0.0
    std: Annotated[float, Field(gt=0)] = 1.0


def training_times(settings: Settings, uniform: torch.Tensor, lowest: float, highest: float) -> torch.Tensor:
    """Compute times (N,) in [lowest, highest] from uniform numbers (N,) in [0, 1)."""
    normal = torch.special.ndtri(uniform)
    return lowest + (highest - lowest) * torch.sigmoid(settings.mean + settings.std * normal)
