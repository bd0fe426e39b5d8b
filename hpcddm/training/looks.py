"""Looks at a network while it is trained: losses and pictures for TensorBoard, which leave the training as it was."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from hpcddm.training.engine import Engine


@dataclass(frozen=True)
class Look:
    """Losses of a network by name, and pictures that it draws, uint8 (N, H, W, C), on rank 0."""

    losses: dict[str, float]
    pictures: np.ndarray | None


@dataclass(frozen=True)
class Looks:
    """A function that looks at a network, on all ranks alike, and the images of the unit between two looks."""

    interval: int
    look: Callable[[nn.Module, torch.device], Look]

    def take(self, engine: Engine, device: torch.device) -> Look:
        """Look; collective. No weight and no stream of random numbers changes."""
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.no_grad(), engine.shown():
            return self.look(engine.model, device)
