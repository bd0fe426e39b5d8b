"""Base of the routing strategies, and functions for strategies that draw experts."""

from abc import abstractmethod

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from hpcddm.config.variants import S, Variant
from hpcddm.sampling.step_context import StepContext

Weights = Float[Tensor, "n k"]
"""Posterior or routing weights of n samples and k experts."""


class Strategy(Variant[S]):
    """Rule that turns a posterior over the experts into weights of their velocities."""

    @abstractmethod
    def routing_weights(self, posterior: Weights, context: StepContext) -> Weights:
        """Compute the weights of the experts' velocities.

        Experts that are selected without randomness keep their posterior values as weights.

        Args:
            posterior: (N, K) probabilities of the experts.
            context: Position on the trajectory, which supplies random numbers.

        Returns:
            (N, K) weights >= 0; every row has a positive weight.
        """

    def normalised_weights(self, posterior: Weights, context: StepContext) -> Weights:
        """Compute the weights of `routing_weights`, scaled to a sum of one per row.

        Args:
            posterior: (N, K) probabilities of the experts.
            context: Position on the trajectory, which supplies random numbers.
        """
        chosen = self.routing_weights(posterior, context)
        return chosen / chosen.sum(1, keepdim=True)


def tempered(posterior: Weights, temperature: float) -> Weights:
    """Compute softmax(logits / temperature) from the posterior softmax(logits) (arXiv 2501.05450, sec. 3.4)."""
    return posterior if temperature == 1 else (posterior.log() / temperature).softmax(dim=1)


def draw_expert(routing_weights: Weights, uniform: Float[Tensor, " m"]) -> Weights:
    """Draw one expert per sample in proportion to the weights, by inversion of the cumulative sum.

    Args:
        routing_weights: (N, K) weights >= 0.
        uniform: (N,) uniform numbers in [0, 1), or (N / 2,) if the rows are two halves that share their numbers.

    Returns:
        (N, K) one-hot rows; zeros where all weights of a row are zero.
    """
    # In double precision uniform * total stays below the total, so an expert without weight is never drawn.
    cumulative = routing_weights.double().cumsum(dim=1)
    level = uniform.to(cumulative).repeat(len(routing_weights) // len(uniform))[:, None] * cumulative[:, -1:]
    chosen = (cumulative <= level).sum(dim=1).clamp(max=routing_weights.shape[1] - 1)
    return F.one_hot(chosen, routing_weights.shape[1]).to(routing_weights) * (routing_weights > 0)
