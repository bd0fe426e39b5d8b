"""The linear path of rectified flow: alpha = 1 - t, sigma = t (arXiv 2209.03003, eq. 1)."""

import torch

from hpcddm.objectives.conversions import Level
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Nothing to set."""


class Schedule:
    """The path on which the ensemble's state and the router live whatever the experts were trained on."""

    range = (0.0, 1.0)

    def __init__(self, settings: Settings):
        self.settings = settings

    def level(self, t: torch.Tensor) -> Level:
        """alpha, sigma and derivatives at t (N,)."""
        return Level(1 - t, t, -torch.ones_like(t), torch.ones_like(t))

    def log_snr(self, t: torch.Tensor) -> torch.Tensor:
        """2 log((1 - t) / t), (N,)."""
        return 2 * ((1 - t) / t).log()

    def time_at(self, log_snr: torch.Tensor) -> torch.Tensor:
        """The inverse of `log_snr`, (N,)."""
        return torch.sigmoid(-log_snr / 2)
