"""The linear path of rectified flow: alpha = 1 - t, sigma = t (arXiv 2209.03003, eq. 1)."""

import torch

from hpcddm.objectives.conversions import Level
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings."""


class Schedule:
    """Path of the ensemble's state and the router, independent of the experts' objectives."""

    range = (0.0, 1.0)

    def __init__(self, settings: Settings):
        self.settings = settings

    def level(self, t: torch.Tensor) -> Level:
        """Compute alpha, sigma and derivatives at t (N,)."""
        return Level(1 - t, t, -torch.ones_like(t), torch.ones_like(t))

    def log_snr(self, t: torch.Tensor) -> torch.Tensor:
        """Compute log-SNR 2 log((1 - t) / t), (N,)."""
        return 2 * ((1 - t) / t).log()

    def time_at(self, log_snr: torch.Tensor) -> torch.Tensor:
        """Invert `log_snr`, (N,)."""
        return torch.sigmoid(-log_snr / 2)
