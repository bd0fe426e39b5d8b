"""Spread placement: networks round robin over all devices; samples are copied to them, weights are not."""

from collections.abc import Callable
from itertools import cycle
from typing import ClassVar

import torch
from torch import Tensor, nn

from hpcddm.config.sampling import PlacementSettings
from hpcddm.jobs.devices import visible_gpus
from hpcddm.sampling.placements.base import Placement


class SpreadSettings(PlacementSettings):
    """Variant without settings; a machine without GPUs has one device."""

    uses_all_gpus: ClassVar[bool] = True


class Spread(Placement[SpreadSettings]):
    """Network number n on device n modulo the number of devices, beginning with this process's own."""

    def place(self, networks: dict[str, nn.Module], device: torch.device) -> dict[str, Callable[..., Tensor]]:
        devices = [torch.device("cuda", number) for number in range(visible_gpus())] or [device]
        # The ranks of a node begin each at its own: they load the same networks in the same order.
        first = devices.index(device) if device in devices else 0
        devices = devices[first:] + devices[:first]
        return {key: _OnDevice(network, target) for (key, network), target in zip(networks.items(), cycle(devices))}


class _OnDevice:
    def __init__(self, network: nn.Module, device: torch.device):
        self.network, self.device = network.to(device), device

    def __call__(self, *inputs: Tensor) -> Tensor:
        prediction: Tensor = self.network(*(tensor.to(self.device, non_blocking=True) for tensor in inputs))
        return prediction
