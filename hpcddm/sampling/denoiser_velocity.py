"""Velocity of the linear path from a trained network of any prediction type."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment, ExpertConfig
from hpcddm.diffusion.objectives.base import Objective
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.models import build_denoiser
from hpcddm.sampling.conversions.base import Conversion

Condition = Shaped[Tensor, "n ..."]
"""Class ids (n,), or states (n, ...) such as those of a prompt's tokens."""
NetworkFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Function (x, t, condition) -> prediction, in the coordinates of the network's objective."""


class DenoiserVelocity:
    """Velocity of the linear path from a model, its objective and a conversion.

    The velocity is on the device of the model's prediction. If experts are spread over devices, this may differ from
    the device of x.

    Args:
        model: Function (x, t, condition) -> prediction, in the coordinates of the objective.
        objective: Objective on which the model was trained.
        conversion: Conversion of the prediction to the velocity.
    """

    def __init__(self, model: NetworkFunction, objective: Objective, conversion: Conversion):
        self.model, self.objective, self.conversion = model, objective, conversion

    def __call__(self, x: Images, t: Float[Tensor, " n"], condition: Condition) -> Images:
        """Compute the velocity.

        Args:
            x: (N, C, H, W) states on the linear path.
            t: (N,) times of the linear path.
            condition: (N, ...) conditions.

        Returns:
            (N, C, H, W) velocities.
        """
        return self._velocity(self.model(*self.conversion.to_native(self.objective, x, t), condition), x, t)

    def guided(self, x: Images, t: Float[Tensor, " n"], condition: Condition, null: Condition, scale: float) -> Images:
        """Compute the velocity with classifier-free guidance (arXiv 2207.12598, eq. 6), both halves in one batch.

        Guidance acts on the model's own prediction, so that a conversion that clamps receives the guided prediction.
        Without a clamp the order does not matter, because conversions are affine in the prediction.

        Args:
            x: (N, C, H, W) states on the linear path.
            t: (N,) times of the linear path.
            condition: (N, ...) conditions.
            null: (N, ...) null conditions.
            scale: Guidance scale; 1 is the conditional prediction.

        Returns:
            (N, C, H, W) velocities.
        """
        prediction = guided_prediction(
            self.model, *self.conversion.to_native(self.objective, x, t), condition, null, scale
        )
        return self._velocity(prediction, x, t)

    def is_active(self, t: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Tell for each time whether the conversion uses this model; see `Conversion.is_active`."""
        return self.conversion.is_active(self.objective, t)

    def _velocity(self, prediction: Images, x: Images, t: Float[Tensor, " n"]) -> Images:
        device = prediction.device
        return self.conversion.velocity(self.objective, prediction, x.to(device), t.to(device))


def guided_prediction(
    model: NetworkFunction, y: Images, tau: Float[Tensor, " n"], condition: Condition, null: Condition, scale: float
) -> Images:
    """Compute prediction(null) + scale (prediction(condition) - prediction(null)), both halves in one batch.

    Args:
        model: Function (x, t, condition) -> prediction.
        y: (N, C, H, W) states in the model's own coordinates.
        tau: (N,) times in the model's own coordinates.
        condition: (N, ...) conditions.
        null: (N, ...) null conditions.
        scale: Guidance scale.
    """
    both = model(torch.cat([y, y]), torch.cat([tau, tau]), torch.cat([condition, null]))
    conditional, unconditional = both.chunk(2)
    return torch.lerp(unconditional, conditional, scale)


def velocity_of(experiment: Experiment, config: ExpertConfig, network: NetworkFunction) -> DenoiserVelocity:
    """Return the velocity of an experiment's denoiser by its objective, its precision and `evaluate.conversion`."""
    conversion = variants.create(Conversion, experiment.evaluate.conversion, config.precision)
    return DenoiserVelocity(network, build_denoiser.objective_of(config), conversion)
