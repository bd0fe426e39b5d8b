"""Flow matching on the linear path: the network predicts the velocity (arXiv 2501.05450, eq. 6).

An objective is what a denoiser was trained for. Training calls `perturb` and `loss`; everything after
training knows a denoiser only through `velocity`, which speaks of the linear path whatever the objective is.
"""

from collections.abc import Callable

import torch

from hpcddm.objectives import path
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Flow matching has nothing to set: uniform times, unweighted squared error."""


class Objective:
    """x_t = (1 - t) x0 + t eps with target velocity dx_t/dt = eps - x0 (data at t = 0, noise at t = 1)."""

    def __init__(self, settings: Settings):
        self.settings = settings

    def perturb(self, x0: torch.Tensor, noise: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The noisy images x_t. x0, noise: (N, C, H, W); t: (N,) in [0, 1]."""
        return path.linear(x0, noise, t)

    def loss(self, prediction: torch.Tensor, x0: torch.Tensor, noise: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The squared error per image, averaged over its values: (N,)."""
        return (prediction - (noise - x0)).square().flatten(1).mean(1)

    def velocity(self, model: Callable, x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """The velocity of the linear path at (x, t) according to a model of this objective.

        Asking the model is part of the method because an objective on another path asks it at the
        SNR-matched time and a rescaled input. x: (N, C, H, W); t: (N,); classes: (N,).
        """
        return model(x, t, classes)
