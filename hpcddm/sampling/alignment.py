"""Alignment of experts with what they are asked about: distances and errors (arXiv 2602.02685)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.sampling.denoiser import Condition, Denoiser
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Weights
from hpcddm.sampling.velocity import EnsembleVelocity


@dataclass
class Recorded:
    """Velocity field that records, once per step, its estimate of x0 and the weights of the experts."""

    inner: EnsembleVelocity
    estimates: list[Images] = field(default_factory=list)
    """x0 = x - t v on the linear path, (N, C, H, W)."""
    weights: list[Weights] = field(default_factory=list)

    def __call__(self, x: Images, t: Float[Tensor, " n"], condition: Condition, context: StepContext) -> Images:
        """Return the field's velocity at (x, t)."""
        velocity = self.inner(x, t, condition, context)
        if context.step == len(self.estimates):
            self.estimates.append(x - t.view(-1, 1, 1, 1) * velocity)
            self.weights.append(self.inner.last_weights[: len(x)])
        return velocity


@dataclass(frozen=True)
class LevelErrors:
    """Errors of the experts at one noise level, for N images.

    experts: mean squared error of every expert's velocity per value; posterior: of the router.
    """

    experts: Float[Tensor, "n k"]
    posterior: Float[Tensor, "n k"]


@torch.no_grad()
def level_errors(
    experts: Sequence[Denoiser],
    field: EnsembleVelocity,
    x0: Images,
    noise: Images,
    condition: Condition,
    time: float,
) -> LevelErrors:
    """Ask every expert for the velocity eps - x0 of noisy images, at one time of the linear path."""
    t = torch.full((len(x0),), time, dtype=x0.dtype, device=x0.device)
    x, velocity = (1 - time) * x0 + time * noise, noise - x0
    estimates = torch.stack([expert(x, t, condition).to(x) for expert in experts], dim=1)
    errors = (estimates - velocity[:, None]).square().flatten(2).mean(2)
    return LevelErrors(errors, field.posterior(x, t, condition))


def of_selected(errors: LevelErrors) -> dict[str, float]:
    """Return mean errors: of the likeliest expert, of all others, of the best one; and how often the first is that."""
    chosen, best = errors.posterior.argmax(1, keepdim=True), errors.experts.argmin(1, keepdim=True)
    own = errors.experts.gather(1, chosen).squeeze(1)
    others = (errors.experts.sum(1) - own) / max(errors.experts.shape[1] - 1, 1)
    return {
        "selected": own.mean().item(),
        "others": others.mean().item(),
        "best": errors.experts.gather(1, best).mean().item(),
        "selected_is_best": (chosen == best).double().mean().item(),
    }


def asked_distance(weights: Weights, distances: Float[Tensor, "n k"]) -> dict[str, float]:
    """Return how far estimates are from the clusters of the experts that are asked, and from those of all.

    asked: distance weighted by the experts' weights; every: mean over all clusters; nearest_asked: weight of the expert
    whose cluster is the nearest.
    """
    shares = weights.to(distances) / weights.to(distances).sum(1, keepdim=True)
    nearest = distances.argmin(1, keepdim=True)
    return {
        "asked": (shares * distances).sum(1).mean().item(),
        "every": distances.mean().item(),
        "nearest_asked": shares.gather(1, nearest).mean().item(),
    }
