"""Weighted sum of experts, each evaluated once and only on the samples that give it a weight."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from hpcddm.diffusion.objectives.conversions import Images


def weighted_velocity(
    experts: Sequence[Callable[..., Tensor] | None],
    routing_weights: Float[Tensor, "n k"],
    x: Images,
    *inputs: Shaped[Tensor, "n ..."],
) -> Images:
    """Compute sum_k routing_weights[:, k] experts[k](x, *inputs), each expert only on samples of non-zero weight.

    An expert without any weight may be None. The result equals the dense sum.
    """
    # The host waits for the device here, and where velocities are checked: group sizes become the experts' batches.
    owners, rows = (routing_weights != 0).T.cpu().nonzero(as_tuple=True)
    groups = rows.to(routing_weights.device).split(owners.bincount(minlength=len(experts)).tolist())
    # All are evaluated before anything is summed: experts on several devices work at the same time.
    velocities = [
        (group, share[group], expert(*(tensor[group] for tensor in (x, *inputs))))
        for expert, group, share in zip(experts, groups, routing_weights.unbind(1), strict=True)
        if expert is not None and len(group)
    ]
    total = torch.zeros_like(x)
    for group, share, velocity in velocities:
        total.index_add_(0, group, share.to(total).view(-1, 1, 1, 1) * velocity.to(total))
    return total
