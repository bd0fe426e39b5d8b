"""Base of the conversions: the velocity of the linear path from a network of any objective."""

from abc import abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hpcddm.config.variants import S, Variant
from hpcddm.diffusion.objectives import conversions
from hpcddm.diffusion.objectives.base import Objective
from hpcddm.diffusion.objectives.conversions import Images


class Conversion(Variant[S]):
    """Velocity eps - x0 of the linear path, data at t = 0 and noise at t = 1, from a network's prediction.

    A network is evaluated at `to_native(objective, x, t)`; `velocity` converts what it predicts there.
    """

    def __init__(self, settings: S, precision: str = "fp32"):
        """precision: that of the networks' predictions, 'fp32', 'bf16' or 'fp16'."""
        super().__init__(settings)
        self.precision = precision

    @property
    @abstractmethod
    def x0_clamp(self) -> float | None:
        """Bound within which estimated images are kept: [-x0_clamp, x0_clamp]; None for no bound."""

    @abstractmethod
    def to_native(self, objective: Objective, x: Images, t: Float[Tensor, " n"]) -> tuple[Images, Float[Tensor, " n"]]:
        """Map the linear path's x at t to the state and time at which a network of the objective is evaluated."""

    @abstractmethod
    def velocity(self, objective: Objective, prediction: Images, x: Images, t: Float[Tensor, " n"]) -> Images:
        """Convert a prediction at `to_native` to the velocity at the linear path's x and t; affine without a clamp."""

    @abstractmethod
    def valid_range(self, objective: Objective) -> tuple[float, float]:
        """Return the first and last time of the linear path at which a network's estimates are used."""

    def is_active(self, objective: Objective, t: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Return False where a network is not evaluated while there are others; by default it is everywhere."""
        return torch.ones_like(t, dtype=torch.bool)

    def estimate(
        self, objective: Objective, y: Images, tau: Float[Tensor, " #n"], prediction: Images
    ) -> tuple[Images, Images]:
        """Estimate x0, within `x0_clamp`, and the eps that goes with it at the native state y and time tau."""
        x0, eps = objective.estimate(y, tau, prediction)
        bound = self.x0_clamp
        if bound is None:
            return x0, eps
        level, clamped = conversions.floored(objective.level(tau)), x0.clamp(-bound, bound)
        return clamped, eps + conversions.scale_per_sample(level.alpha / level.sigma, x0 - clamped)
