"""Observations of a network during training: losses and images for TensorBoard, without any effect on the training."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from hpcddm.training.engine import Engine


@dataclass(frozen=True)
class Observation:
    """Losses of a network by name, and the images (N, H, W, C) that it draws, uint8, on rank 0."""

    losses: dict[str, float]
    images: np.ndarray | None


@dataclass(frozen=True)
class Observer:
    """Function that measures a network on all ranks, and the interval between two measurements in images."""

    interval: int
    measure: Callable[[nn.Module, torch.device], Observation]

    def run(self, engine: Engine, device: torch.device) -> Observation:
        """Measure the averaged network; collective. Weights and random streams stay unchanged.

        Args:
            engine: Model under training.
            device: Device of this rank.
        """
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.no_grad(), engine.averaged_network():
            return self.measure(engine.model, device)
