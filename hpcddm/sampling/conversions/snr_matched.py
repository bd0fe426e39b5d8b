"""SNR-matched: a network is evaluated at the native time of equal log-SNR, on the rescaled state.

If the native time tau has the log-SNR of the linear path's t, the state y = (alpha + sigma) x at tau corresponds to x
at t, and the linear velocity eps - x0 follows exactly from the prediction (the mapping of arXiv 2506.02221). For the
cosine path tau = (2 / pi) atan2(t, 1 - t); for epsilon-prediction on any path v = (eps - x) / (1 - t).
"""

from typing import Annotated, Any

import torch
from jaxtyping import Bool, Float, Float64
from pydantic import Field
from torch import Tensor

from hpcddm.config.sampling import ConversionSettings
from hpcddm.diffusion.objectives.base import Objective
from hpcddm.diffusion.objectives.conversions import Images, Level, clamp_level, convert, scale_per_sample
from hpcddm.sampling.conversions.base import Conversion

HIGHEST = {"fp32": 1 - 1e-3, "fp16": 0.99, "bf16": 0.97}
"""Largest linear time at which an epsilon network's estimates are used, by precision of its predictions.

Rounding to bf16 (1 in 512) alone changes the velocity by 1.7 at t = 0.999 and by 0.06 at 0.97. fp16 is 8 times as
precise, and in fp32 the change is below 1e-3.
"""


class SnrMatchedSettings(ConversionSettings):
    """Range of linear times in which the networks' estimates are used.

    The errors of an epsilon network grow as 1 / (1 - t), so its estimates are not used above `max_time`, by default
    0.97 for networks in bf16, 0.99 in fp16 and 0.999 in fp32. The errors of an x0 network grow as 1 / t, so its
    estimates are not used below `min_time`. `x0_clamp` clamps estimates of x0 to [-x0_clamp, x0_clamp], in a space
    where x has bounds. Above time `skip_above` epsilon networks are not evaluated if other networks are available.
    """

    min_time: Annotated[float, Field(gt=0, lt=0.5)] = 1e-3
    max_time: Annotated[float, Field(gt=0.5, lt=1)] | None = None
    x0_clamp: Annotated[float, Field(gt=0)] | None = None
    skip_above: Annotated[float, Field(gt=0, lt=1)] | None = None

    def check(self, experiment: Any) -> None:
        """Raise ValueError for a clamp of x without bounds, or a clamp on the two halves of guidance separately."""
        evaluate, space = experiment.evaluate, experiment.data.space
        if self.x0_clamp is not None and space.bound is None:
            raise ValueError(f"x0_clamp {self.x0_clamp:g}: x has no bound in the space {space.name}; remove it")
        if self.x0_clamp is not None and evaluate.guidance != 1 and evaluate.posteriors != "shared":
            raise ValueError("x0_clamp comes after guidance, which needs 'posteriors: shared'")


class SnrMatched(Conversion[SnrMatchedSettings]):
    """Exact velocity of the linear path, within `valid_range`, from a network of any objective."""

    @property
    def x0_clamp(self) -> float | None:
        """Bound from the settings."""
        return self.settings.x0_clamp

    def to_native(self, objective: Objective, x: Images, t: Float[Tensor, " n"]) -> tuple[Images, Float[Tensor, " n"]]:
        """Map x at t on the linear path to the native state and time of equal log-SNR.

        Outside `valid_range`, the scale of the state and the native time are those of the nearest valid level.
        """
        _, tau, level = self._matched(objective, t)
        return scale_per_sample(level.alpha + level.sigma, x), tau.to(t.dtype)

    def velocity(self, objective: Objective, prediction: Images, x: Images, t: Float[Tensor, " n"]) -> Images:
        """Convert a prediction at `to_native` to the velocity at x and t on the linear path.

        Above `valid_range` the velocity is (x - x0) / t with the estimate of x0 at the nearest valid level. Below the
        range the score at the nearest valid level is used, because with its x0 the velocity would grow as 1 / t: eps is
        t / s times the estimate at the linear time s of that level, and v = (eps - x) / (1 - t).
        """
        s, _, level = self._matched(objective, t)
        y, level = scale_per_sample(level.alpha + level.sigma, x), clamp_level(level)
        velocity = convert(objective.prediction_type, "velocity", level, y, prediction)
        if self.x0_clamp is not None:
            x0 = convert(objective.prediction_type, "x0", level, y, prediction)
            beyond = x0 - x0.clamp(-self.x0_clamp, self.x0_clamp)
            velocity = velocity + scale_per_sample(1 / s.clamp(min=self.settings.min_time), beyond)
        # At the level s x0 = x - s v and eps = x + (1 - s) v; what the docstring says, in terms of this v.
        t = t.double()
        below = (t / s) * (1 - s) / (1 - t)
        of_velocity = torch.where(t < s, below, torch.where(t > s, s / t, 1.0))
        of_state = torch.where(t < s, (t / s - 1) / (1 - t), 0.0)
        return scale_per_sample(of_velocity, velocity) + scale_per_sample(of_state, x)

    def is_active(self, objective: Objective, t: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Return False for an epsilon network at times above `skip_above`."""
        if self.settings.skip_above is None or objective.blind_at != 1:
            return super().is_active(objective, t)
        return t <= self.settings.skip_above

    def valid_range(self, objective: Objective) -> tuple[float, float]:
        """Return the first and last time of the linear path at which the network's estimates are used."""
        lowest, highest = objective.linear_range
        if objective.blind_at == 0:
            lowest = max(lowest, self.settings.min_time)
        if objective.blind_at == 1:
            highest = min(highest, self.settings.max_time or HIGHEST[self.precision])
        return lowest, highest

    def _matched(
        self, objective: Objective, t: Float[Tensor, " n"]
    ) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"], Level]:
        """Return the nearest linear time in `valid_range`, the native time of the same log-SNR, and its level."""
        s = t.double().clamp(*self.valid_range(objective))
        tau = objective.native_time(s)
        return s, tau, objective.level(tau)
