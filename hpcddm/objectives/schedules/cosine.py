"""The trigonometric path: alpha = cos(pi t / 2), sigma = sin(pi t / 2) (arXiv 2202.00512, sec. 2).

It is the cosine schedule of arXiv 2102.09672, eq. 17, without its offset, and the GVP path of arXiv 2401.08740.
"""

import math

import torch

from hpcddm.objectives.conversions import Level
from hpcddm.schema import VariantSettings

QUARTER = math.pi / 2


class Settings(VariantSettings):
    """Variant without settings."""


class Schedule:
    """Path with alpha^2 + sigma^2 = 1 and constant angular speed."""

    range = (0.0, 1.0)

    def __init__(self, settings: Settings):
        self.settings = settings

    def level(self, t: torch.Tensor) -> Level:
        """Compute alpha, sigma and derivatives at t (N,)."""
        # The cosine as a sine of the rest: cos(pi / 2) is 6e-17, and near t = 1 it loses digits.
        alpha, sigma = torch.sin(QUARTER * (1 - t)), torch.sin(QUARTER * t)
        return Level(alpha, sigma, -QUARTER * sigma, QUARTER * alpha)

    def log_snr(self, t: torch.Tensor) -> torch.Tensor:
        """Compute log-SNR -2 log tan(pi t / 2), (N,)."""
        level = self.level(t)
        return 2 * (level.alpha / level.sigma).log()

    def time_at(self, log_snr: torch.Tensor) -> torch.Tensor:
        """Invert `log_snr`, (N,)."""
        return torch.atan(torch.exp(-log_snr / 2)) / QUARTER
