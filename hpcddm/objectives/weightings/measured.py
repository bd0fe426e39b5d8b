"""The squared error measured in another quantity than the predicted one (arXiv 2202.00512, sec. 4)."""

from typing import Literal

import torch

from hpcddm.objectives.conversions import Level, determinant
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """`velocity` is that of the linear path.

    Where the prediction says nothing about the quantity (epsilon about x0 at t = 1) the weight grows without
    bound, up to 1e12 by the floor of the conversions; `min_snr` does not.
    """

    quantity: Literal["epsilon", "x0", "v", "velocity"]


def loss_weight(settings: Settings, quantity: str, level: Level) -> torch.Tensor:
    """The factor (N,) that makes the squared error of `quantity` that of `settings.quantity`."""
    return (determinant(settings.quantity, level) / determinant(quantity, level)).square()
