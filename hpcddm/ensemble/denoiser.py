"""A trained network of any prediction type as a velocity of the linear path."""

from collections.abc import Callable
from typing import Any

import torch


class Denoiser:
    """Velocity of the linear path from a model, its objective and a conversion.

    model: (x, t, condition) -> prediction, in the coordinates of its objective; condition: (N,) class ids or (N, ...)
    states; only rows of it are taken. The result is on the device of the model's prediction, which is not that of x
    when experts are spread over devices.
    """

    def __init__(self, model: Callable, objective: Any, conversion: Any):
        self.model, self.objective, self.conversion = model, objective, conversion

    def __call__(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Compute the velocity at (x, t). x: (N, C, H, W); t: (N,) -> (N, C, H, W)."""
        return self._velocity(self.model(*self.conversion.to_native(self.objective, x, t), condition), x, t)

    def guided(
        self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor, null: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Compute the velocity with classifier-free guidance (arXiv 2207.12598, eq. 6), both halves in one batch.

        Guidance acts on the model's own prediction, so that a conversion that clamps sees the guided one. Without a
        clamp the order does not matter: conversions are affine in the prediction.
        """
        prediction = guided_prediction(
            self.model, *self.conversion.to_native(self.objective, x, t), condition, null, scale
        )
        return self._velocity(prediction, x, t)

    def is_active(self, t: torch.Tensor) -> torch.Tensor:
        """Return the conversion's `is_active` of this model at times t (N,): bool (N,)."""
        return self.conversion.is_active(self.objective, t)

    def _velocity(self, prediction: torch.Tensor, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        device = prediction.device
        return self.conversion.velocity(self.objective, prediction, x.to(device), t.to(device))


def guided_prediction(
    model: Callable, y: torch.Tensor, tau: torch.Tensor, condition: torch.Tensor, null: torch.Tensor, scale: float
) -> torch.Tensor:
    """Compute prediction(null) + scale (prediction(condition) - prediction(null)), both halves in one batch.

    y: (N, C, H, W) and tau: (N,), in the model's own coordinates.
    """
    both = model(torch.cat([y, y]), torch.cat([tau, tau]), torch.cat([condition, null]))
    conditional, unconditional = both.chunk(2)
    return torch.lerp(unconditional, conditional, scale)
