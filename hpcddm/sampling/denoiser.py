"""A trained network of any prediction type as a velocity of the linear path."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from hpcddm.diffusion.objectives.base import Objective
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.sampling.conversions.base import Conversion

Condition = Shaped[Tensor, "n ..."]
"""Class ids (n,), or states (n, ...) such as those of a prompt's tokens."""
Network = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(x, t, condition) -> prediction, in the coordinates of the network's objective."""


class Denoiser:
    """Velocity of the linear path from a model, its objective and a conversion.

    The result is on the device of the model's prediction, which is not that of x when experts are spread over devices.
    """

    def __init__(self, model: Network, objective: Objective, conversion: Conversion):
        self.model, self.objective, self.conversion = model, objective, conversion

    def __call__(self, x: Images, t: Float[Tensor, " n"], condition: Condition) -> Images:
        """Compute the velocity at (x, t)."""
        return self._velocity(self.model(*self.conversion.to_native(self.objective, x, t), condition), x, t)

    def guided(self, x: Images, t: Float[Tensor, " n"], condition: Condition, null: Condition, scale: float) -> Images:
        """Compute the velocity with classifier-free guidance (arXiv 2207.12598, eq. 6), both halves in one batch.

        Guidance acts on the model's own prediction, so that a conversion that clamps sees the guided one. Without a
        clamp the order does not matter: conversions are affine in the prediction.
        """
        prediction = guided_prediction(
            self.model, *self.conversion.to_native(self.objective, x, t), condition, null, scale
        )
        return self._velocity(prediction, x, t)

    def is_active(self, t: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Return the conversion's `is_active` of this model at times t."""
        return self.conversion.is_active(self.objective, t)

    def _velocity(self, prediction: Images, x: Images, t: Float[Tensor, " n"]) -> Images:
        device = prediction.device
        return self.conversion.velocity(self.objective, prediction, x.to(device), t.to(device))


def guided_prediction(
    model: Network, y: Images, tau: Float[Tensor, " n"], condition: Condition, null: Condition, scale: float
) -> Images:
    """Compute prediction(null) + scale (prediction(condition) - prediction(null)), both halves in one batch.

    y, tau: in the model's own coordinates.
    """
    both = model(torch.cat([y, y]), torch.cat([tau, tau]), torch.cat([condition, null]))
    conditional, unconditional = both.chunk(2)
    return torch.lerp(unconditional, conditional, scale)
