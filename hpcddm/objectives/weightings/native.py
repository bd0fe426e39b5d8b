"""The plain squared error of what the network predicts (arXiv 2501.05450, eq. 6; arXiv 2006.11239, eq. 14)."""

import torch

from hpcddm.objectives.conversions import Level
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings."""


def loss_weight(settings: Settings, prediction_type: str, level: Level) -> torch.Tensor:
    """Return the factor (N,) of the squared error of `prediction_type`: 1."""
    return torch.ones_like(level.alpha)
