"""Calibrated router: logits plus the log prior of the clusters, divided by a temperature that depends on time."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hpcddm.models.base import Condition, Images, Logits, Times


class CalibratedRouter(nn.Module):
    """Router with logits (logits + log prior) / T(t).

    A router that is trained with equally frequent clusters, each with its own images and classes, learns q(k | x, t, c)
    ~ p(x, t, c | k) / K. The natural posterior is ~ p(x, t, c | k) p(k), so that adding log p(k) corrects it, with or
    without a class.

    Args:
        router: Router to calibrate.
        log_prior: K values of log p(k); zeros if the router was trained at the natural frequencies.
        levels: Increasing times, at which the temperatures are given.
        temperatures: Temperature at each level (arXiv 1706.04599, eq. 9); linear in between, constant outside.
    """

    log_prior: Tensor
    levels: Tensor
    temperatures: Tensor

    def __init__(
        self, router: nn.Module, log_prior: Sequence[float], levels: Sequence[float], temperatures: Sequence[float]
    ):
        super().__init__()
        self.router = router
        device = next(router.parameters()).device
        for name, values in (("log_prior", log_prior), ("levels", levels), ("temperatures", temperatures)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32, device=device), persistent=False)

    def forward(self, x: Images, t: Times, condition: Condition) -> Logits:
        """Compute the calibrated logits (N, K)."""
        return (self.router(x, t, condition) + self.log_prior) / self.temperature(t)[:, None]

    def temperature(self, t: Times) -> Float[Tensor, " n"]:
        """Interpolate the temperatures at times t (N,)."""
        t = t.to(self.levels.dtype).contiguous()
        after = torch.searchsorted(self.levels, t).clamp(1, len(self.levels) - 1)
        start, stop = self.levels[after - 1], self.levels[after]
        share = ((t - start) / (stop - start)).clamp(0, 1)
        return torch.lerp(self.temperatures[after - 1], self.temperatures[after], share)
