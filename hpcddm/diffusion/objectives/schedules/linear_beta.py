"""The variance-preserving path with beta rising linearly in continuous time (arXiv 2011.13456, eq. 33)."""

from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from hpcddm.config.objectives import ScheduleSettings
from hpcddm.diffusion.objectives.conversions import Level
from hpcddm.diffusion.objectives.schedules.base import Schedule


class LinearBetaSettings(ScheduleSettings):
    """beta at t = 0, at most 1, and at t = 1, at least 1, so that beta rises."""

    beta_min: Annotated[float, Field(gt=0, le=1)] = 0.1
    beta_max: Annotated[float, Field(ge=1)] = 20.0


class LinearBeta(Schedule[LinearBetaSettings]):
    """Path with alpha^2 = exp(-B), sigma^2 = 1 - exp(-B), where B(t) is the integral of beta from 0 to t.

    sigma' is infinite at t = 0: no network is trained or evaluated below 1e-5 (arXiv 2011.13456, app. C). With the
    default settings log-SNR goes from 13.8 to -10.1, on the linear path from t = 0.0010 to 0.9935.
    """

    range = (1e-5, 1.0)

    def level(self, t: Float[Tensor, " n"]) -> Level:
        t = t.clamp(*self.range)
        integral, beta = self._integral(t), self.settings.beta_min + self._slope * t
        alpha, sigma = torch.exp(-integral / 2), torch.sqrt(-torch.expm1(-integral))
        return Level(alpha, sigma, -beta / 2 * alpha, beta / 2 * alpha**2 / sigma)

    def log_snr(self, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Compute log-SNR -log(exp(B) - 1)."""
        return -torch.expm1(self._integral(t.clamp(*self.range))).log()

    def time_at(self, log_snr: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Invert `log_snr` by the root of a quadratic, B = log(1 + exp(-log_snr))."""
        least = self.settings.beta_min
        # Beyond `range` any finite value does: it is clamped.
        integral = F.softplus(-log_snr.clamp(min=-1e4), threshold=1e3)
        t = 2 * integral / (least + torch.sqrt(least**2 + 2 * self._slope * integral))
        return t.clamp(*self.range)

    @property
    def _slope(self) -> float:
        return self.settings.beta_max - self.settings.beta_min

    def _integral(self, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        return t * (self.settings.beta_min + self._slope * t / 2)
