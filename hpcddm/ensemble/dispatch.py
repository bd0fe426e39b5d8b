"""The weighted sum of experts, each asked once and only about the samples that want it."""

from collections.abc import Callable, Sequence

import torch


def weighted_velocity(
    experts: Sequence[Callable], routing_weights: torch.Tensor, *inputs: torch.Tensor
) -> torch.Tensor:
    """sum_k weights[:, k] experts[k](*inputs), where an expert never sees samples it has no weight for.

    weights: (N, K); inputs: tensors of N rows such as x, t, condition, the first one (N, C, H, W) -> (N, C, H, W).
    Equals the dense sum.
    """
    # The one host sync of a sampling step: group sizes become the shapes of the experts' batches.
    owners, rows = (routing_weights != 0).T.cpu().nonzero(as_tuple=True)
    groups = rows.to(routing_weights.device).split(owners.bincount(minlength=len(experts)).tolist())
    # All are asked before anything is summed: experts on several devices work at the same time.
    asked = [
        (group, share[group], expert(*(one[group] for one in inputs)))
        for expert, group, share in zip(experts, groups, routing_weights.unbind(1), strict=True)
        if len(group)
    ]
    total = torch.zeros_like(inputs[0])
    for group, share, velocity in asked:
        total.index_add_(0, group, share.to(total).view(-1, 1, 1, 1) * velocity.to(total))
    return total
