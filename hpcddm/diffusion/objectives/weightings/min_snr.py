"""Min-SNR: the squared error of x0, weighted by min(SNR, gamma) (arXiv 2303.09556, sec. 3.4)."""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from hpcddm.config.objectives import WeightingSettings
from hpcddm.diffusion.objectives.conversions import Level, determinant
from hpcddm.diffusion.objectives.weightings.base import Weighting


class MinSnrSettings(WeightingSettings):
    """SNR `gamma` above which the weight is constant."""

    gamma: Annotated[float, Field(gt=0)] = 5.0


class MinSnr(Weighting[MinSnrSettings]):
    """Weight of epsilon's error min(SNR, gamma) / SNR, and of other quantities' accordingly."""

    def loss_weight(self, prediction_type: str, level: Level) -> Float[Tensor, " n"]:
        # min(SNR, gamma) sigma^2: at a given x an error of x0 is sigma / determinant that of the quantity.
        least = torch.minimum(level.alpha.square(), self.settings.gamma * level.sigma.square())
        return least / determinant(prediction_type, level).square()
