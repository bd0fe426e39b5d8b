"""Base of the schedules: alpha and sigma on a path from data to noise."""

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

    The time t is the schedule's own ('native') time. All results have the floating-point type of the argument.
    """

    range: ClassVar[tuple[float, float]]
    """First and last native time at which a network of this path may be evaluated."""

    @abstractmethod
    def level(self, t: Float[Tensor, " n"]) -> Level:
        """Compute alpha, sigma and their time derivatives.

        Args:
            t: (N,) native times, which are clamped to `range`.
        """

    @abstractmethod
    def log_snr(self, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Compute log(alpha^2 / sigma^2) at times t (N,); infinite where alpha or sigma is 0."""

    @abstractmethod
    def time_at(self, log_snr: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Invert `log_snr`: return the time in `range` with this log-SNR (N,), or the nearest time."""

    def perturb(
        self, x0: Float[Tensor, "n c h w"], noise: Float[Tensor, "n c h w"], t: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c h w"]:
        """Compute the noisy images x_t.

        Args:
            x0: (N, C, H, W) clean images or latents.
            noise: (N, C, H, W) standard normal noise eps.
            t: (N,) native times.

        Returns:
            (N, C, H, W) noisy images.
        """
        level = self.level(t)
        return scale_per_sample(level.alpha, x0) + scale_per_sample(level.sigma, noise)

    def shifted(self, t: Float[Tensor, " n"], shift: float) -> Float[Tensor, " n"]:
        """Return the times whose log-SNR is lower by 2 log(shift) (arXiv 2403.03206, eq. 23, with shift = sqrt(m / n)).

        On the linear path the result is shift t / (1 + (shift - 1) t).

        Args:
            t: (N,) native times.
            shift: Factor above 0; values above 1 move times towards noise.
        """
        return self.time_at(self.log_snr(t) - 2 * math.log(shift))


def log_snr_differences(
    source: ScheduleSettings, target: ScheduleSettings, t: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """Compute the log-SNR on the target's path minus the log-SNR on the source's path at the same native times.

    Args:
        source: Settings of the first schedule.
        target: Settings of the second schedule.
        t: (N,) native times.

    Returns:
        (N,) differences.
    """
    before, after = (variants.create(Schedule, settings) for settings in (source, target))
    return after.log_snr(t) - before.log_snr(t)
