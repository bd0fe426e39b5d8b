"""Drawing experts from a posterior by given uniform numbers."""

import torch
import torch.nn.functional as F


def tempered(posterior: torch.Tensor, temperature: float) -> torch.Tensor:
    """Compute softmax(logits / T) from the posterior softmax(logits), (N, K) (arXiv 2501.05450, sec. 3.4)."""
    return posterior if temperature == 1 else (posterior.log() / temperature).softmax(dim=1)


def draw(routing_weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Draw one expert per sample in proportion to its weight: one-hot rows (N, K), zero where all weights are.

    uniform: (N,), or (N / 2,) where the rows are two halves that share their numbers. Inverts the cumulative sum.
    """
    # In double precision uniform * total stays below the total, so an expert without weight is never drawn.
    cumulative = routing_weights.double().cumsum(dim=1)
    level = uniform.to(cumulative).repeat(len(routing_weights) // len(uniform))[:, None] * cumulative[:, -1:]
    chosen = (cumulative <= level).sum(dim=1).clamp(max=routing_weights.shape[1] - 1)
    return F.one_hot(chosen, routing_weights.shape[1]).to(routing_weights) * (routing_weights > 0)
