"""Uniform order: every epoch is a new random permutation of all rows."""

import numpy as np
from jaxtyping import Int64

from hpcddm.config.data_variants import OrderSettings
from hpcddm.data.orders.base import EpochOrder
from hpcddm.randomness.keyed import Bijection


class UniformOrderSettings(OrderSettings):
    """Settings of the uniform order: only its name."""


class UniformOrder(EpochOrder[UniformOrderSettings]):
    """Permutation of all rows."""

    def permute(self, key: str, positions: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        return Bijection(key, self.size)(positions)
