"""As reported: same time, same state, for comparison with Heterogeneous Decentralized Diffusion Models.

The paper converts by x0 = (x - sigma eps) / max(alpha, 0.01), clamped to [-20, 20], and v = eps - x0. It does not
mention rescaling of the state. Without rescaling, a network of another path is evaluated at states that do not occur in
its training at that time, and the identity of the ensemble does not hold. `snr_matched` is exact.
"""

from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from hpcddm.config.sampling import ConversionSettings
from hpcddm.diffusion.objectives.base import Objective
from hpcddm.diffusion.objectives.conversions import Images, clamp_level, convert, scale_per_sample
from hpcddm.sampling.conversions.base import Conversion


class AsReportedSettings(ConversionSettings):
    """Clamps of the paper, and the scale of converted velocities at high noise.

    The paper scales converted velocities above time `high_noise` by an unpublished formula. `high_noise_scale` replaces
    this formula; the default 1 leaves the velocities unchanged.
    """

    safe_alpha: Annotated[float, Field(gt=0, lt=1)] = 0.01
    x0_clamp: Annotated[float, Field(gt=0)] = 20.0
    high_noise: Annotated[float, Field(gt=0, lt=1)] = 0.85
    high_noise_scale: Annotated[float, Field(gt=0)] = 1.0

    def check(self, experiment: Any) -> None:
        """Raise ValueError if the clamp would act on the two halves of guidance separately."""
        if experiment.evaluate.guidance != 1 and experiment.evaluate.posteriors != "shared":
            raise ValueError("as_reported clamps x0 after guidance, which needs 'posteriors: shared'")


class AsReported(Conversion[AsReportedSettings]):
    """Velocity eps - x0 from a prediction at the same time and state; exact only for networks of the linear path."""

    @property
    def x0_clamp(self) -> float:
        """Bound of the clamp in the paper."""
        return self.settings.x0_clamp

    def to_native(self, objective: Objective, x: Images, t: Float[Tensor, " n"]) -> tuple[Images, Float[Tensor, " n"]]:
        """Return x unchanged, and t clamped to the range of the network's schedule."""
        return x, t.clamp(*objective.schedule.range)

    def velocity(self, objective: Objective, prediction: Images, x: Images, t: Float[Tensor, " n"]) -> Images:
        """Convert a prediction at `to_native` to eps - x0 with x0 clamped."""
        level = objective.level(self.to_native(objective, x, t)[1])
        level = clamp_level(level._replace(alpha=level.alpha.clamp(min=self.settings.safe_alpha)))
        x0 = convert(objective.prediction_type, "x0", level, x, prediction)
        noise = convert(objective.prediction_type, "epsilon", level, x, prediction)
        velocity = noise - x0.clamp(-self.x0_clamp, self.x0_clamp)
        converted = (t > self.settings.high_noise) & (objective.blind_at == 1)
        return scale_per_sample(torch.where(converted, self.settings.high_noise_scale, 1.0), velocity)

    def valid_range(self, objective: Objective) -> tuple[float, float]:
        """Return the first and last time of the linear path that the network's schedule covers."""
        return objective.linear_range
