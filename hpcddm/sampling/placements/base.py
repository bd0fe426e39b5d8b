"""Base of the placements of networks on devices."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hpcddm.config.variants import S, Variant


class Placement(Variant[S]):
    """A placement of the networks' weights; it changes no bit of what they compute."""

    @abstractmethod
    def place(self, networks: dict[str, nn.Module], device: torch.device) -> dict[str, Callable[..., Tensor]]:
        """Return the networks as functions (x, t, condition) -> prediction, for tensors on `device`.

        The prediction may be on another device. Raises `ConfigError` when the networks do not fit.
        """
