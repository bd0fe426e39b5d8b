"""Resident placement: every network stays on the device."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hpcddm.config.sampling import PlacementSettings
from hpcddm.sampling.placements.base import Placement


class ResidentSettings(PlacementSettings):
    """Variant without settings."""


class Resident(Placement[ResidentSettings]):
    """Networks themselves, moved to the device once."""

    def place(self, networks: dict[str, nn.Module], device: torch.device) -> dict[str, Callable[..., Tensor]]:
        return {key: network.to(device) for key, network in networks.items()}
