"""Base of the objectives: a path, and the linear combination of image and noise that the network predicts.

Training calls `training_times`, `perturb` and `loss`; sampling calls `estimate`, or a conversion of
`sampling/conversions`, which computes the velocity of the linear path for every objective.
"""

from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.objectives import ObjectiveSettings, ScheduleSettings
from hpcddm.config.variants import Variant
from hpcddm.diffusion.objectives import conversions
from hpcddm.diffusion.objectives.conversions import Images, Level
from hpcddm.diffusion.objectives.schedules.base import Schedule
from hpcddm.diffusion.objectives.times.base import TimesDistribution
from hpcddm.diffusion.objectives.weightings.base import Weighting


class Objective(Variant[ObjectiveSettings]):
    """Path x_t = alpha(t) x0 + sigma(t) eps and the quantity `prediction_type` that the network predicts at x_t.

    All times t are native times, those of the objective's own schedule.

    Args:
        settings: Settings of the objective: schedule, distribution of training times, loss weighting, time shift.
    """

    prediction_type: ClassVar[str]
    """A key of `conversions.LINEAR_FORMS`."""
    blind_at: ClassVar[float | None] = None
    """Time at which the prediction is independent of x0 (1.0) or eps (0.0): near it, its errors are amplified."""

    def __init__(self, settings: ObjectiveSettings):
        super().__init__(settings)
        self.schedule = variants.create(Schedule, settings.schedule)
        self._times = variants.create(TimesDistribution, settings.times)
        self._weighting = variants.create(Weighting, settings.weighting)

    def training_times(self, uniform: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Map uniform random numbers in [0, 1), of shape (N,), to training times (N,)."""
        t = self._times.training_times(uniform.double(), *self.schedule.range)
        if self.settings.shift != 1:
            t = self.schedule.shifted(t, self.settings.shift)
        return t.to(uniform.dtype)

    def perturb(self, x0: Images, noise: Images, t: Float[Tensor, " n"]) -> Images:
        """Compute the noisy images x_t = alpha(t) x0 + sigma(t) eps.

        Args:
            x0: (N, C, H, W) clean images or latents.
            noise: (N, C, H, W) standard normal noise eps.
            t: (N,) native times.

        Returns:
            (N, C, H, W) noisy images.
        """
        return self.schedule.perturb(x0, noise, t.double())

    def predict(self, x0: Images, noise: Images, t: Float[Tensor, " n"]) -> Images:
        """Compute the quantity that the network should predict.

        Args:
            x0: (N, C, H, W) clean images or latents.
            noise: (N, C, H, W) standard normal noise eps.
            t: (N,) native times.

        Returns:
            (N, C, H, W) targets.
        """
        return conversions.predict(self.prediction_type, self.level(t), x0, noise)

    def loss(self, prediction: Images, x0: Images, noise: Images, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Compute the weighted squared error of each image, averaged over its values.

        Args:
            prediction: (N, C, H, W) output of the network at x_t.
            x0: (N, C, H, W) clean images or latents.
            noise: (N, C, H, W) standard normal noise eps.
            t: (N,) native times.

        Returns:
            (N,) losses.
        """
        error = (prediction - self.predict(x0, noise, t)).square().flatten(1).mean(1)
        level = conversions.clamp_level(self.level(t))
        return conversions.scale_per_sample(self._weighting.loss_weight(self.prediction_type, level), error)

    def estimate(self, x: Images, t: Float[Tensor, " #n"], prediction: Images) -> tuple[Images, Images]:
        """Estimate x0 and eps from a prediction.

        Args:
            x: (N, C, H, W) state on the native path.
            t: (N,) or (1,) native times.
            prediction: (N, C, H, W) output of the network at x and t.

        Returns:
            Estimates of x0 and of eps, each (N, C, H, W).
        """
        level = conversions.clamp_level(self.level(t))
        x0 = conversions.convert(self.prediction_type, "x0", level, x, prediction)
        return x0, conversions.convert(self.prediction_type, "epsilon", level, x, prediction)

    def level(self, t: Float[Tensor, " n"]) -> Level:
        """Return alpha, sigma and their derivatives at native times, in float64: float32 is too coarse at the ends."""
        return self.schedule.level(t.double())

    def native_time(self, t: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
        """Map times (N,) of the linear path to the native times of equal log-SNR, or the nearest ones in range."""
        return self.schedule.time_at(LINEAR.log_snr(t))

    @cached_property
    def linear_range(self) -> tuple[float, float]:
        """First and last time of the linear path that has a native time of equal log-SNR."""
        ends = torch.tensor(self.schedule.range, dtype=torch.float64)
        lowest, highest = LINEAR.time_at(self.schedule.log_snr(ends)).tolist()
        return lowest, highest


LINEAR = variants.create(Schedule, ScheduleSettings.model_validate({"name": "linear"}))
"""The linear path, on which ensembles and routers operate."""
