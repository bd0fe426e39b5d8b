"""Base of the objectives: a path, and a linear form of image and noise that the network predicts.

Training calls `training_times`, `perturb` and `loss`; sampling calls `estimate`, or a conversion of
`ensemble/conversions`, which gives the linear path's velocity for every objective.
"""

from functools import cached_property
from typing import ClassVar

import torch

from hpcddm import plugins
from hpcddm.objectives import conversions
from hpcddm.objectives.conversions import Level
from hpcddm.objectives.schedules.base import Schedule
from hpcddm.objectives.schedules.settings import ScheduleSettings
from hpcddm.objectives.settings import ObjectiveSettings


class Objective:
    """Path x_t = alpha(t) x0 + sigma(t) eps and the quantity `prediction_type` that the network predicts.

    t is the schedule's time.
    """

    prediction_type: ClassVar[str]
    """A key of `conversions.FORMS`."""
    blind_at: ClassVar[float | None] = None
    """Time at which the prediction is independent of x0 (1.0) or eps (0.0): near it, its errors are amplified."""

    def __init__(self, settings: ObjectiveSettings):
        self.settings = settings
        self.schedule = plugins.create(Schedule, settings.schedule)
        self._times = plugins.load("objectives/times", settings.times.name)
        self._weighting = plugins.load("objectives/weightings", settings.weighting.name)

    def training_times(self, uniform: torch.Tensor) -> torch.Tensor:
        """Compute training times (N,) from uniform numbers (N,) in [0, 1)."""
        t = self._times.training_times(self.settings.times, uniform.double(), *self.schedule.range)
        if self.settings.shift != 1:
            t = self.schedule.shifted(t, self.settings.shift)
        return t.to(uniform.dtype)

    def perturb(self, x0: torch.Tensor, noise: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Compute the noisy images x_t. x0, noise: (N, C, H, W); t: (N,) in [0, 1]."""
        return self.schedule.perturb(x0, noise, t.double())

    def predict(self, x0: torch.Tensor, noise: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Compute the target of the prediction from x0 and noise: (N, C, H, W)."""
        return conversions.predict(self.prediction_type, self.level(t), x0, noise)

    def loss(self, prediction: torch.Tensor, x0: torch.Tensor, noise: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Compute the weighted squared error per image, averaged over its values: (N,)."""
        error = (prediction - self.predict(x0, noise, t)).square().flatten(1).mean(1)
        level = conversions.floored(self.level(t))
        return conversions.scale_per_sample(
            self._weighting.loss_weight(self.settings.weighting, self.prediction_type, level), error
        )

    def estimate(self, x: torch.Tensor, t: torch.Tensor, prediction: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Estimate x0 and eps from a prediction at the native state x (N, C, H, W) and time t (N,)."""
        level = conversions.floored(self.level(t))
        estimates = (
            conversions.convert(self.prediction_type, target, level, x, prediction) for target in ("x0", "epsilon")
        )
        return tuple(estimates)

    def level(self, t: torch.Tensor) -> Level:
        """Return alpha and sigma at native times (N,), float64: near the ends float32 is not precise enough."""
        return self.schedule.level(t.double())

    @cached_property
    def linear_range(self) -> tuple[float, float]:
        """First and last time of the linear path with the log-SNRs of the schedule's range."""
        ends = torch.tensor(self.schedule.range, dtype=torch.float64)
        lowest, highest = LINEAR.time_at(self.schedule.log_snr(ends)).tolist()
        return lowest, highest


LINEAR = plugins.create(Schedule, ScheduleSettings.model_validate({"name": "linear"}))
"""The path of the ensemble's state and the router."""
