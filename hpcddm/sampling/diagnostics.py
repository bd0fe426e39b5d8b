"""Diagnostics of an ensemble: entropy of its router, disagreement of its experts, refinement gap."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hpcddm.config.sampling import SamplerSettings
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.diffusion.spaces.base import Space
from hpcddm.sampling.denoiser_velocity import Condition
from hpcddm.sampling.sampler import sample, time_grid
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Weights
from hpcddm.sampling.velocity import EnsembleVelocity


def diagnose(
    field_of: Callable[[], EnsembleVelocity],
    seed: int,
    indices: Sequence[int],
    condition: Condition,
    space: Space[SpaceSettings],
    sampler: SamplerSettings,
) -> dict[str, Any]:
    """Measure the diagnostics of arXiv 2602.02685 along the trajectories of an arm.

    Args:
        field_of: Function that creates a new velocity field of the arm.
        seed: Seed of the initial noise.
        indices: Numbers of the images; take few, because every expert is evaluated on each.
        condition: (N, ...) conditions of the images.
        space: Space of x.
        sampler: Settings of the sampler.

    Returns:
        'times': times of the steps, from 1 downwards. 'entropy' (nats) and 'disagreement': means over the images per
        step. 'refinement_gap': mean over the images.
    """
    recorder = DiagnosticVelocity(field_of())
    drawn = sample(recorder, seed, indices, condition, space, sampler)
    finer = sample(field_of(), seed, indices, condition, space, sampler.model_copy(update={"steps": 2 * sampler.steps}))
    return {
        "times": time_grid(sampler.steps, sampler.shift)[:-1],
        "entropy": recorder.entropy,
        "disagreement": recorder.disagreement,
        "refinement_gap": refinement_gap(drawn, finer),
    }


class DiagnosticVelocity:
    """Velocity field that records its posterior's entropy and its experts' disagreement once per step."""

    def __init__(self, field: EnsembleVelocity):
        self.field, self.experts = field, field.experts
        self.entropy: list[float] = []
        self.disagreement: list[float] = []

    def __call__(self, x: Images, t: Float[Tensor, " n"], condition: Condition, context: StepContext) -> Images:
        """Return the velocity of the field at (x, t)."""
        if context.step == len(self.entropy):
            posterior = self.field.posterior(x, t, condition)
            velocities = [
                x.new_zeros(x.shape) if expert is None else expert(x, t, condition).to(x) for expert in self.experts
            ]
            self.entropy.append(entropy(posterior).mean().item())
            self.disagreement.append(disagreement(posterior, torch.stack(velocities, dim=1)).mean().item())
        return self.field(x, t, condition, context)


def entropy(posterior: Weights) -> Float[Tensor, " n"]:
    """Compute -sum_k p_k log p_k in nats for each row of a posterior (N, K)."""
    return torch.special.entr(posterior).sum(1)


def disagreement(posterior: Weights, velocities: Float[Tensor, "n k c h w"]) -> Float[Tensor, " n"]:
    """Compute sum_k p_k |v_k - sum_j p_j v_j|^2, averaged over the values of each image.

    Args:
        posterior: (N, K) probabilities of the experts.
        velocities: (N, K, C, H, W) velocities of the experts.

    Returns:
        (N,) disagreements.
    """
    routing_weights = posterior.to(velocities)[:, :, None, None, None]
    mean = (routing_weights * velocities).sum(1, keepdim=True)
    return (routing_weights * (velocities - mean).square()).sum(1).flatten(1).mean(1)


def refinement_gap(images: Images, finer: Images) -> float:
    """Compute the mean squared difference between images drawn with n and with 2 n steps from the same noise."""
    return (images - finer).square().mean().item()
