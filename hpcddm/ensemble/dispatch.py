"""The weighted sum of experts, each asked once and only about the samples that want it."""

from collections.abc import Callable, Sequence

import torch


def weighted_velocity(
    experts: Sequence[Callable], weights: torch.Tensor, x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor
) -> torch.Tensor:
    """sum_k weights[:, k] experts[k](x, t, classes), where an expert never sees samples it has no weight for.

    weights: (N, K); x: (N, C, H, W); t, classes: (N,) -> (N, C, H, W). Equals the dense sum.
    """
    owners, rows = weights.T.nonzero(as_tuple=True)
    # The one host sync of a sampling step: group sizes become the shapes of the experts' batches.
    groups = rows.split(owners.bincount(minlength=len(experts)).tolist())
    total = torch.zeros_like(x)
    for expert, group, share in zip(experts, groups, weights.unbind(1), strict=True):
        if len(group):
            velocity = expert(x[group], t[group], classes[group])
            total.index_add_(0, group, share[group].view(-1, 1, 1, 1) * velocity)
    return total
