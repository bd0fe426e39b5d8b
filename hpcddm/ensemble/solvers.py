"""Solvers of dx/dt = v(x, t) from noise at t = 1 to data at t = 0."""

from collections.abc import Callable

import torch


def euler(velocity: Callable, x: torch.Tensor, steps: int) -> torch.Tensor:
    """Euler's method with equal steps; `velocity` maps x (N, C, H, W) and t (N,) to (N, C, H, W)."""
    for step in range(steps):
        t = torch.full((len(x),), 1 - step / steps, device=x.device)
        x = x - velocity(x, t) / steps
    return x
