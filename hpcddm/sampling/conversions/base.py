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
    """Conversion of a network's prediction to the velocity eps - x0 of the linear path (data at t = 0, noise at t = 1).

    The network is evaluated at `to_native(objective, x, t)`; `velocity` converts its prediction at this point.

    Args:
        settings: Settings of the variant.
        precision: Precision of the networks' predictions: 'fp32', 'bf16' or 'fp16'.
    """

    def __init__(self, settings: S, precision: str = "fp32"):
        super().__init__(settings)
        self.precision = precision

    @property
    @abstractmethod
    def x0_clamp(self) -> float | None:
        """Bound on estimates of x0, which are clamped to [-x0_clamp, x0_clamp]; None for no bound."""

    @abstractmethod
    def to_native(self, objective: Objective, x: Images, t: Float[Tensor, " n"]) -> tuple[Images, Float[Tensor, " n"]]:
        """Map a state of the linear path to the state and time at which the network is evaluated.

        Args:
            objective: Objective of the network.
            x: (N, C, H, W) states on the linear path.
            t: (N,) times of the linear path.

        Returns:
            (N, C, H, W) native states and (N,) native times.
        """

    @abstractmethod
    def velocity(self, objective: Objective, prediction: Images, x: Images, t: Float[Tensor, " n"]) -> Images:
        """Convert a prediction to the velocity of the linear path; the conversion is affine without a clamp.

        Args:
            objective: Objective of the network.
            prediction: (N, C, H, W) output of the network at `to_native(objective, x, t)`.
            x: (N, C, H, W) states on the linear path.
            t: (N,) times of the linear path.

        Returns:
            (N, C, H, W) velocities eps - x0.
        """

    @abstractmethod
    def valid_range(self, objective: Objective) -> tuple[float, float]:
        """Return the first and last time of the linear path at which the network's estimates are used."""

    def is_active(self, objective: Objective, t: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Tell for each time whether the network is evaluated if other networks are available; by default always.

        Args:
            objective: Objective of the network.
            t: (N,) times of the linear path.

        Returns:
            (N,) bool.
        """
        return torch.ones_like(t, dtype=torch.bool)

    def estimate(
        self, objective: Objective, y: Images, tau: Float[Tensor, " #n"], prediction: Images
    ) -> tuple[Images, Images]:
        """Estimate x0, clamped to `x0_clamp`, and the eps that is consistent with it.

        Args:
            objective: Objective of the network.
            y: (N, C, H, W) native states.
            tau: (N,) or (1,) native times.
            prediction: (N, C, H, W) output of the network at y and tau.

        Returns:
            Estimates of x0 and of eps, each (N, C, H, W).
        """
        x0, eps = objective.estimate(y, tau, prediction)
        bound = self.x0_clamp
        if bound is None:
            return x0, eps
        level, clamped = conversions.clamp_level(objective.level(tau)), x0.clamp(-bound, bound)
        return clamped, eps + conversions.scale_per_sample(level.alpha / level.sigma, x0 - clamped)
