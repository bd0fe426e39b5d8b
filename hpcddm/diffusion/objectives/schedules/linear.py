"""The linear path of rectified flow: alpha = 1 - t, sigma = t (arXiv 2209.03003, eq. 1)."""

import torch
from jaxtyping import Float
from torch import Tensor

from hpcddm.config.objectives import ScheduleSettings
from hpcddm.diffusion.objectives.conversions import Level
from hpcddm.diffusion.objectives.schedules.base import Schedule


class LinearSettings(ScheduleSettings):
    """Variant without settings."""


class Linear(Schedule[LinearSettings]):
    """Path of the ensemble's state and the router, independent of the experts' objectives."""

    range = (0.0, 1.0)

    def level(self, t: Float[Tensor, " n"]) -> Level:
        return Level(1 - t, t, -torch.ones_like(t), torch.ones_like(t))

    def log_snr(self, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Compute log-SNR 2 log((1 - t) / t)."""
        return 2 * ((1 - t) / t).log()

    def time_at(self, log_snr: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        return torch.sigmoid(-log_snr / 2)
