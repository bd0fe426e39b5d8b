"""Spread placement: networks round robin over all devices; samples are copied to them, weights are not."""

from collections.abc import Callable
from itertools import cycle
from typing import ClassVar

import torch
from torch import nn

from hpcddm.devices import visible_gpus
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings; a machine without GPUs has one device."""

    uses_all_gpus: ClassVar[bool] = True


def place(settings: Settings, networks: dict[str, nn.Module], device: torch.device) -> dict[str, Callable]:
    """Return the networks as functions (x, t, condition) -> prediction, which stays on the network's device."""
    devices = [torch.device("cuda", number) for number in range(visible_gpus())] or [device]
    # The ranks of a node begin each at its own: they load the same networks in the same order.
    first = devices.index(device) if device in devices else 0
    devices = devices[first:] + devices[:first]
    return {key: _OnDevice(network, target) for (key, network), target in zip(networks.items(), cycle(devices))}


class _OnDevice:
    def __init__(self, network: nn.Module, device: torch.device):
        self.network, self.device = network.to(device), device

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.network(*(tensor.to(self.device, non_blocking=True) for tensor in inputs))
