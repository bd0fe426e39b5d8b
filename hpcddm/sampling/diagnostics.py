"""Diagnostics of an ensemble: the entropy of its router, the disagreement of its experts, the refinement gap."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hpcddm.config.sampling import SamplerSettings
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.diffusion.spaces.base import Space
from hpcddm.sampling.denoiser import Condition
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
    """Measure entropy and disagreement along the trajectories of an arm, by time, and its refinement gap.

    field_of: makes a fresh field of the arm; indices, condition: as in `sample`, few, for every expert is evaluated.
    'times' are those of the steps, from 1 downwards; 'entropy' (nats), 'disagreement' and 'refinement_gap' are means
    over samples. These are the diagnostics of arXiv 2602.02685.
    """
    watched = Watched(field_of())
    drawn = sample(watched, seed, indices, condition, space, sampler)
    finer = sample(field_of(), seed, indices, condition, space, sampler.model_copy(update={"steps": 2 * sampler.steps}))
    return {
        "times": time_grid(sampler.steps, sampler.shift)[:-1],
        "entropy": watched.entropy,
        "disagreement": watched.disagreement,
        "refinement_gap": refinement_gap(drawn, finer),
    }


class Watched:
    """Velocity field that records, once per step, the entropy of its posterior and the disagreement of its experts."""

    def __init__(self, field: EnsembleVelocity):
        self.field, self.experts = field, field.experts
        self.entropy: list[float] = []
        self.disagreement: list[float] = []

    def __call__(self, x: Images, t: Float[Tensor, " n"], condition: Condition, context: StepContext) -> Images:
        """Return the field's velocity at (x, t)."""
        if context.step == len(self.entropy):
            posterior = self.field.posterior(x, t, condition)
            velocities = [
                x.new_zeros(x.shape) if expert is None else expert(x, t, condition).to(x) for expert in self.experts
            ]
            self.entropy.append(entropy(posterior).mean().item())
            self.disagreement.append(disagreement(posterior, torch.stack(velocities, dim=1)).mean().item())
        return self.field(x, t, condition, context)


def entropy(posterior: Weights) -> Float[Tensor, " n"]:
    """Compute -sum_k p_k log p_k in nats."""
    return torch.special.entr(posterior).sum(1)


def disagreement(posterior: Weights, velocities: Float[Tensor, "n k c h w"]) -> Float[Tensor, " n"]:
    """Average sum_k p_k |v_k - sum_j p_j v_j|^2 over an image's values."""
    routing_weights = posterior.to(velocities)[:, :, None, None, None]
    mean = (routing_weights * velocities).sum(1, keepdim=True)
    return (routing_weights * (velocities - mean).square()).sum(1).flatten(1).mean(1)


def refinement_gap(images: Images, finer: Images) -> float:
    """Return the mean squared difference of images drawn with n and with 2 n steps from the same noise."""
    return (images - finer).square().mean().item()
