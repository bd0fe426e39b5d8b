"""Min-SNR: the squared error of x0, weighted by min(SNR, gamma) (arXiv 2303.09556, sec. 3.4)."""

from typing import Annotated

import torch
from pydantic import Field

from hpcddm.objectives.conversions import Level, determinant
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """SNR `gamma` above which the weight is constant."""

    gamma: Annotated[float, Field(gt=0)] = 5.0


def loss_weight(settings: Settings, prediction_type: str, level: Level) -> torch.Tensor:
    """Compute the factor (N,) of the squared error of `prediction_type`; for epsilon it is min(SNR, gamma) / SNR."""
    # min(SNR, gamma) sigma^2: at a given x an error of x0 is sigma / determinant that of the quantity.
    least = torch.minimum(level.alpha.square(), settings.gamma * level.sigma.square())
    return least / determinant(prediction_type, level).square()
