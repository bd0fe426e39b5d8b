"""The plain squared error of what the network predicts (arXiv 2501.05450, eq. 6; arXiv 2006.11239, eq. 14)."""

import torch
from jaxtyping import Float
from torch import Tensor

from hpcddm.config.objectives import WeightingSettings
from hpcddm.diffusion.objectives.conversions import Level
from hpcddm.diffusion.objectives.weightings.base import Weighting


class NativeSettings(WeightingSettings):
    """Variant without settings."""


class Native(Weighting[NativeSettings]):
    """Weight 1 of what the network predicts."""

    def loss_weight(self, prediction_type: str, level: Level) -> Float[Tensor, " n"]:
        return torch.ones_like(level.alpha)
