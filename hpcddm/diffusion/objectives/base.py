"""Base of the objectives: a path, and a linear form of image and noise that the network predicts.

Training calls `training_times`, `perturb` and `loss`; sampling calls `estimate`, or a conversion of
`sampling/conversions`, which gives the linear path's velocity for every objective.
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
    """Path x_t = alpha(t) x0 + sigma(t) eps and the quantity `prediction_type` that the network predicts.

    t is the schedule's time.
    """

    prediction_type: ClassVar[str]
    """A key of `conversions.FORMS`."""
    blind_at: ClassVar[float | None] = None
    """Time at which the prediction is independent of x0 (1.0) or eps (0.0): near it, its errors are amplified."""

    def __init__(self, settings: ObjectiveSettings):
        super().__init__(settings)
        self.schedule = variants.create(Schedule, settings.schedule)
        self._times = variants.create(TimesDistribution, settings.times)
        self._weighting = variants.create(Weighting, settings.weighting)

    def training_times(self, uniform: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Compute training times from uniform numbers in [0, 1)."""
        t = self._times.training_times(uniform.double(), *self.schedule.range)
        if self.settings.shift != 1:
            t = self.schedule.shifted(t, self.settings.shift)
        return t.to(uniform.dtype)

    def perturb(self, x0: Images, noise: Images, t: Float[Tensor, " n"]) -> Images:
        """Compute the noisy images x_t."""
        return self.schedule.perturb(x0, noise, t.double())

    def predict(self, x0: Images, noise: Images, t: Float[Tensor, " n"]) -> Images:
        """Compute the target of the prediction from x0 and noise."""
        return conversions.predict(self.prediction_type, self.level(t), x0, noise)

    def loss(self, prediction: Images, x0: Images, noise: Images, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Compute the weighted squared error per image, averaged over its values."""
        error = (prediction - self.predict(x0, noise, t)).square().flatten(1).mean(1)
        level = conversions.floored(self.level(t))
        return conversions.scale_per_sample(self._weighting.loss_weight(self.prediction_type, level), error)

    def estimate(self, x: Images, t: Float[Tensor, " #n"], prediction: Images) -> tuple[Images, Images]:
        """Estimate x0 and eps from a prediction at the native state x and time t."""
        level = conversions.floored(self.level(t))
        x0 = conversions.convert(self.prediction_type, "x0", level, x, prediction)
        return x0, conversions.convert(self.prediction_type, "epsilon", level, x, prediction)

    def level(self, t: Float[Tensor, " n"]) -> Level:
        """Return alpha and sigma at native times, float64: near the ends float32 is not precise enough."""
        return self.schedule.level(t.double())

    def native_time(self, t: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
        """Return the native times with the log-SNRs that the linear path has at t, or the nearest ones."""
        return self.schedule.time_at(LINEAR.log_snr(t))

    @cached_property
    def linear_range(self) -> tuple[float, float]:
        """First and last time of the linear path with the log-SNRs of the schedule's range."""
        ends = torch.tensor(self.schedule.range, dtype=torch.float64)
        lowest, highest = LINEAR.time_at(self.schedule.log_snr(ends)).tolist()
        return lowest, highest


LINEAR = variants.create(Schedule, ScheduleSettings.model_validate({"name": "linear"}))
"""The path of the ensemble's state and the router."""
