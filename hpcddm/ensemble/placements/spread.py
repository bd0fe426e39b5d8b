"""Networks round robin over all devices: the samples travel, not the weights."""

from collections.abc import Callable
from itertools import cycle
from typing import ClassVar

import torch
from torch import nn

from hpcddm.devices import visible_gpus
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Nothing to set; a machine without GPUs has one device."""

    uses_all_gpus: ClassVar[bool] = True


def place(settings: Settings, networks: dict[str, nn.Module], device: torch.device) -> dict[str, Callable]:
    """The networks as functions (x, t, condition) -> prediction, which stays on the network's device."""
    devices = [torch.device("cuda", number) for number in range(visible_gpus())] or [device]
    # The ranks of a node begin each at its own: they load the same networks in the same order.
    own = devices.index(device) if device in devices else 0
    devices = devices[own:] + devices[:own]
    return {key: _Elsewhere(network, where) for (key, network), where in zip(networks.items(), cycle(devices))}


class _Elsewhere:
    def __init__(self, network: nn.Module, device: torch.device):
        self.network, self.device = network.to(device), device

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.network(*(one.to(self.device, non_blocking=True) for one in inputs))
