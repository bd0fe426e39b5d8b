"""What an ensemble decides along the trajectories of its samples: posterior, experts asked, estimates of the image."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.sampling.denoiser_velocity import Condition
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.velocity import EnsembleVelocity


@dataclass(frozen=True)
class Decisions:
    """Decisions about N samples in S steps among K experts; T of the steps have estimates."""

    posterior: Float[Tensor, "n s k"]
    """Probabilities of the experts by the router at the sample's state of each step, with its condition."""
    weights: Float[Tensor, "n s k"]
    """Weights of the experts' velocities; an expert without weight is not evaluated."""
    estimates: Float[Tensor, "n t c h w"]
    """Estimates x0 = x - t v of the image, in the space of x."""
    shown: list[int]
    """Steps of the estimates."""


class RecordingVelocity:
    """Velocity field of an ensemble that records its decisions, once per step; the velocity stays the same.

    Args:
        field: Velocity field of an ensemble.
        steps: Number of steps of the sampler.
        estimates: Number of estimates that are kept of a sample, at most.
    """

    def __init__(self, field: EnsembleVelocity, steps: int, estimates: int):
        self.field, self.arm = field, field.arm
        count = min(estimates, steps)
        # The steps below the middles of as many equal parts of the trajectory.
        self._shown = [(2 * part + 1) * steps // (2 * count) for part in range(count)]
        self._posterior: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._estimates: list[Tensor] = []

    def __call__(self, x: Images, t: Float[Tensor, " n"], condition: Condition, context: StepContext) -> Images:
        """Return the velocity of the field at (x, t)."""
        velocity = self.field(x, t, condition, context)
        if context.step == len(self._posterior):
            self._posterior.append(self.field.posterior(x, t, condition).cpu())
            # With guidance the rows of the half without condition follow.
            self._weights.append(self.field.last_weights[: len(x)].cpu())
            if context.step in self._shown:
                # On the linear path x = (1 - t) x0 + t eps and v = eps - x0.
                self._estimates.append((x - t.view(-1, 1, 1, 1) * velocity).cpu())
        return velocity

    @property
    def decisions(self) -> Decisions:
        """Decisions of the trajectories so far."""
        posterior, weights, estimates = (
            torch.stack(kept, dim=1) for kept in (self._posterior, self._weights, self._estimates)
        )
        return Decisions(posterior, weights, estimates, self._shown)
