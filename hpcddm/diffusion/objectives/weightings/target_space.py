"""The squared error measured in another space than the prediction (arXiv 2202.00512, sec. 4)."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from hpcddm.config.objectives import WeightingSettings
from hpcddm.diffusion.objectives.conversions import Level, determinant
from hpcddm.diffusion.objectives.weightings.base import Weighting


class TargetSpaceSettings(WeightingSettings):
    """Quantity in whose space the error is measured; `velocity` is that of the linear path.

    Where the prediction is independent of the target (epsilon of x0 at t = 1) the weight grows without
    bound, up to 1e12 by the floor of the conversions; `min_snr` does not.
    """

    prediction_type: Literal["epsilon", "x0", "v", "velocity"]


class TargetSpace(Weighting[TargetSpaceSettings]):
    """Weight that makes the squared error that of `settings.prediction_type`."""

    def loss_weight(self, prediction_type: str, level: Level) -> Float[Tensor, " n"]:
        return (determinant(self.settings.prediction_type, level) / determinant(prediction_type, level)).square()
