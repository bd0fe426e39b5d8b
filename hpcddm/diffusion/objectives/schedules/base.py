"""Base of the schedules: alpha and sigma of a path from data to noise."""

import math
from abc import abstractmethod
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.objectives import ScheduleSettings
from hpcddm.config.variants import S, Variant
from hpcddm.diffusion.objectives.conversions import Level, scale_per_sample


class Schedule(Variant[S]):
    """Path x_t = alpha(t) x0 + sigma(t) eps from data at t = 0 to noise at t = 1.

    t is the schedule's own ('native') time; all results have the floating-point type of the argument.
    """

    range: ClassVar[tuple[float, float]]
    """First and last native time at which a network of this path may be evaluated."""

    @abstractmethod
    def level(self, t: Float[Tensor, " n"]) -> Level:
        """Compute alpha, sigma and derivatives at t, clamped to `range`."""

    @abstractmethod
    def log_snr(self, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Compute log(alpha^2 / sigma^2) at t; infinite where alpha or sigma is 0."""

    @abstractmethod
    def time_at(self, log_snr: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return the time in `range` with this log-SNR, or the nearest one: the inverse of `log_snr`."""

    def perturb(
        self, x0: Float[Tensor, "n c h w"], noise: Float[Tensor, "n c h w"], t: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c h w"]:
        """Compute the noisy images x_t."""
        level = self.level(t)
        return scale_per_sample(level.alpha, x0) + scale_per_sample(level.sigma, noise)

    def shifted(self, t: Float[Tensor, " n"], shift: float) -> Float[Tensor, " n"]:
        """Return times whose log-SNR is lower by 2 log(shift); on the linear path shift t / (1 + (shift - 1) t).

        arXiv 2403.03206, eq. 23, with shift = sqrt(m / n).
        """
        return self.time_at(self.log_snr(t) - 2 * math.log(shift))


def log_snr_moves(source: ScheduleSettings, target: ScheduleSettings, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Compute log-SNR on the target's path less that on the source's, at equal native times."""
    before, after = (variants.create(Schedule, settings) for settings in (source, target))
    return after.log_snr(t) - before.log_snr(t)
