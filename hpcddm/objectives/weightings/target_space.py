"""The squared error measured in another space than the prediction (arXiv 2202.00512, sec. 4)."""

from typing import Literal

import torch

from hpcddm.objectives.conversions import Level, determinant
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Quantity in whose space the error is measured; `velocity` is that of the linear path.

    Where the prediction is independent of the target (epsilon of x0 at t = 1) the weight grows without
    bound, up to 1e12 by the floor of the conversions; `min_snr` does not.
    """

    prediction_type: Literal["epsilon", "x0", "v", "velocity"]


def loss_weight(settings: Settings, prediction_type: str, level: Level) -> torch.Tensor:
    """Compute the factor (N,) that makes the squared error of `prediction_type` that of `settings.prediction_type`."""
    return (determinant(settings.prediction_type, level) / determinant(prediction_type, level)).square()
