"""Alignment of experts with the images that they denoise: distances and errors (arXiv 2602.02685)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.sampling.denoiser_velocity import Condition, DenoiserVelocity
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Weights
from hpcddm.sampling.velocity import EnsembleVelocity


@dataclass
class RecordingVelocity:
    """Velocity field that records its estimate of x0 and the experts' weights once per step."""

    inner: EnsembleVelocity
    estimates: list[Images] = field(default_factory=list)
    """Estimates x0 = x - t v on the linear path, (N, C, H, W)."""
    weights: list[Weights] = field(default_factory=list)

    def __call__(self, x: Images, t: Float[Tensor, " n"], condition: Condition, context: StepContext) -> Images:
        """Return the velocity of the inner field at (x, t)."""
        velocity = self.inner(x, t, condition, context)
        if context.step == len(self.estimates):
            self.estimates.append(x - t.view(-1, 1, 1, 1) * velocity)
            self.weights.append(self.inner.last_weights[: len(x)])
        return velocity


@dataclass(frozen=True)
class LevelErrors:
    """Errors of the experts at one noise level, for N images and K experts.

    Args:
        experts: (N, K) mean squared errors of the experts' velocities, per value.
        posterior: (N, K) posterior of the router.
    """

    experts: Float[Tensor, "n k"]
    posterior: Float[Tensor, "n k"]


@torch.no_grad()
def level_errors(
    experts: Sequence[DenoiserVelocity],
    field: EnsembleVelocity,
    x0: Images,
    noise: Images,
    condition: Condition,
    time: float,
) -> LevelErrors:
    """Measure the error of every expert's velocity on noisy images, at one time of the linear path.

    Args:
        experts: Velocities of the K experts.
        field: Velocity field of the ensemble, which supplies the posterior.
        x0: (N, C, H, W) clean images.
        noise: (N, C, H, W) standard normal noise.
        condition: (N, ...) conditions of the images.
        time: Time of the linear path in [0, 1].
    """
    t = torch.full((len(x0),), time, dtype=x0.dtype, device=x0.device)
    x, velocity = (1 - time) * x0 + time * noise, noise - x0
    estimates = torch.stack([expert(x, t, condition).to(x) for expert in experts], dim=1)
    errors = (estimates - velocity[:, None]).square().flatten(2).mean(2)
    return LevelErrors(errors, field.posterior(x, t, condition))


def summarise_errors(errors: LevelErrors) -> dict[str, float]:
    """Average errors over the images.

    Returns:
        Mean error of the most likely expert ('selected'), of the other experts ('others') and of the best expert
        ('best'), and how often the most likely expert is the best one ('selected_is_best').
    """
    selected, best = errors.posterior.argmax(1, keepdim=True), errors.experts.argmin(1, keepdim=True)
    selected_errors = errors.experts.gather(1, selected).squeeze(1)
    others = (errors.experts.sum(1) - selected_errors) / max(errors.experts.shape[1] - 1, 1)
    return {
        "selected": selected_errors.mean().item(),
        "others": others.mean().item(),
        "best": errors.experts.gather(1, best).mean().item(),
        "selected_is_best": (selected == best).double().mean().item(),
    }


def used_cluster_distance(weights: Weights, distances: Float[Tensor, "n k"]) -> dict[str, float]:
    """Compare the distance to the clusters of the experts in use with the distance to all clusters.

    Args:
        weights: (N, K) weights of the experts.
        distances: (N, K) distances of the estimates from the clusters.

    Returns:
        Mean distance weighted by the experts' weights ('asked'), mean distance over all clusters ('every'), and mean
        weight of the expert with the nearest cluster ('nearest_asked').
    """
    shares = weights.to(distances) / weights.to(distances).sum(1, keepdim=True)
    nearest = distances.argmin(1, keepdim=True)
    return {
        "asked": (shares * distances).sum(1).mean().item(),
        "every": distances.mean().item(),
        "nearest_asked": shares.gather(1, nearest).mean().item(),
    }
