"""The trigonometric path: alpha = cos(pi t / 2), sigma = sin(pi t / 2) (arXiv 2202.00512, sec. 2).

It is the cosine schedule of arXiv 2102.09672, eq. 17, without its offset, and the GVP path of arXiv 2401.08740.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from hpcddm.config.objectives import ScheduleSettings
from hpcddm.diffusion.objectives.conversions import Level
from hpcddm.diffusion.objectives.schedules.base import Schedule

QUARTER = math.pi / 2


class CosineSettings(ScheduleSettings):
    """Variant without settings."""


class Cosine(Schedule[CosineSettings]):
    """Path with alpha^2 + sigma^2 = 1 and constant angular speed.

    Examples:
        >>> level = Cosine(CosineSettings(name="cosine")).level(torch.tensor([0.5]))
        >>> round(level.alpha.item(), 4), round(level.sigma.item(), 4)
        (0.7071, 0.7071)
    """

    range = (0.0, 1.0)

    def level(self, t: Float[Tensor, " n"]) -> Level:
        # The cosine as a sine of the rest: cos(pi / 2) is 6e-17, and near t = 1 it loses digits.
        """Compute alpha = cos(pi t / 2), sigma = sin(pi t / 2) and their time derivatives."""
        alpha, sigma = torch.sin(QUARTER * (1 - t)), torch.sin(QUARTER * t)
        return Level(alpha, sigma, -QUARTER * sigma, QUARTER * alpha)

    def log_snr(self, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Compute log-SNR -2 log tan(pi t / 2)."""
        level = self.level(t)
        return 2 * (level.alpha / level.sigma).log()

    def time_at(self, log_snr: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Invert `log_snr`."""
        return torch.atan(torch.exp(-log_snr / 2)) / QUARTER
