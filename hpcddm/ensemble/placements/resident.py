"""Resident placement: every network stays on the device."""

from collections.abc import Callable

import torch
from torch import nn

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings."""


def place(settings: Settings, networks: dict[str, nn.Module], device: torch.device) -> dict[str, Callable]:
    """Return the networks as functions (x, t, condition) -> prediction, for tensors on `device`."""
    return {key: network.to(device) for key, network in networks.items()}
