"""Base of the routing strategies, and what those share that draw experts."""

from abc import abstractmethod

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from hpcddm.config.variants import S, Variant
from hpcddm.sampling.step_context import StepContext

Weights = Float[Tensor, "n k"]
"""Posterior or routing weights of n samples and k experts."""


class Strategy(Variant[S]):
    """A rule that makes the weights of the experts' velocities of a posterior over the experts."""

    @abstractmethod
    def routing_weights(self, posterior: Weights, context: StepContext) -> Weights:
        """Return weights >= 0, not all zero in any row.

        Those of experts that are chosen, not drawn, are their posterior values.
        """

    def normalised_weights(self, posterior: Weights, context: StepContext) -> Weights:
        """Return the weights, scaled so that every row sums to one."""
        chosen = self.routing_weights(posterior, context)
        return chosen / chosen.sum(1, keepdim=True)


def tempered(posterior: Weights, temperature: float) -> Weights:
    """Compute softmax(logits / T) from the posterior softmax(logits) (arXiv 2501.05450, sec. 3.4)."""
    return posterior if temperature == 1 else (posterior.log() / temperature).softmax(dim=1)


def draw(routing_weights: Weights, uniform: Float[Tensor, " m"]) -> Weights:
    """Draw one expert per sample in proportion to its weight: one-hot rows, zero where all weights are.

    uniform: (n,), or (n / 2,) where the rows are two halves that share their numbers. Inverts the cumulative sum.
    """
    # In double precision uniform * total stays below the total, so an expert without weight is never drawn.
    cumulative = routing_weights.double().cumsum(dim=1)
    level = uniform.to(cumulative).repeat(len(routing_weights) // len(uniform))[:, None] * cumulative[:, -1:]
    chosen = (cumulative <= level).sum(dim=1).clamp(max=routing_weights.shape[1] - 1)
    return F.one_hot(chosen, routing_weights.shape[1]).to(routing_weights) * (routing_weights > 0)
