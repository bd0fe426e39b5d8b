"""Base of the placements of networks on devices."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hpcddm.config.variants import S, Variant


class Placement(Variant[S]):
    """Placement of the networks' weights on devices; it does not change any bit of the results."""

    @abstractmethod
    def place(self, networks: dict[str, nn.Module], device: torch.device) -> dict[str, Callable[..., Tensor]]:
        """Place networks.

        Args:
            networks: Networks by the keys of their units, on the CPU.
            device: Device of the inputs.

        Returns:
            Functions (x, t, condition) -> prediction by key, for inputs on `device`. The prediction may be on another
                device.

        Raises:
            ConfigError: The networks do not fit into memory.
        """
