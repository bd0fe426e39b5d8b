"""The linear path of the ensemble's state and the router, independent of the experts' objectives."""

import torch


def linear(x0: torch.Tensor, noise: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Compute x_t = (1 - t) x0 + t eps (arXiv 2501.05450, sec. 3.1). x0, noise: (N, C, H, W); t: (N,) in [0, 1]."""
    time = t.view(-1, 1, 1, 1)
    return (1 - time) * x0 + time * noise
