"""Least-recently-used cache of networks on the device, within a bound on the bytes of their weights."""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from hpcddm.config.sampling import PlacementSettings
from hpcddm.errors import ConfigError
from hpcddm.sampling.placements.base import Placement

GIB = 2**30


class LruSettings(PlacementSettings):
    """Bound on the weights of all denoisers that are on the device at one time, in GiB."""

    max_gib: Annotated[float, Field(gt=0)]


class Lru(Placement[LruSettings]):
    """Keeps copies of the networks' weights on the device and evicts the least recently used ones.

    All weights are read and verified once and stay in the host's memory. The router is always on the device, because
    it is evaluated at every step.
    """

    def place(self, networks: dict[str, nn.Module], device: torch.device) -> dict[str, Callable[..., Tensor]]:
        cache = WeightCache(networks, self.settings.max_gib * GIB, device)
        return {key: partial(cache.call, key) for key in networks}


class WeightCache:
    """Networks in the host's memory; some have copies on the device. `loads` counts the copies made."""

    def __init__(self, networks: dict[str, nn.Module], bound: float, device: torch.device):
        self.networks, self.bound, self.device = networks, bound, device
        self.sizes = {
            key: sum(tensor.nbytes for tensor in _tensors(network).values()) for key, network in networks.items()
        }
        self.copies: OrderedDict[str, dict[str, Tensor]] = OrderedDict()
        self.loads = 0
        for key, size in self.sizes.items():
            if size > bound:
                raise ConfigError(
                    f"evaluate.placement.max_gib: {bound / GIB:.3g} are less than {key} alone, {size / GIB:.3g};"
                    f" needs at least {max(self.sizes.values()) / GIB:.3g}"
                )

    def call(self, key: str, *inputs: Tensor) -> Tensor:
        """Evaluate a network on the device, copying its weights there first if need be."""
        prediction: Tensor = torch.func.functional_call(self.networks[key], self._copy(key), inputs)
        return prediction

    def _copy(self, key: str) -> dict[str, Tensor]:
        if key not in self.copies:
            while sum(self.sizes[copied] for copied in self.copies) + self.sizes[key] > self.bound:
                self.copies.popitem(last=False)
            tensors = _tensors(self.networks[key])
            self.copies[key] = {name: tensor.to(self.device, copy=True) for name, tensor in tensors.items()}
            self.loads += 1
        self.copies.move_to_end(key)
        return self.copies[key]


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return dict(network.named_parameters()) | dict(network.named_buffers())
