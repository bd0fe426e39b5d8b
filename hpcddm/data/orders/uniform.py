"""Uniform order: every epoch is a new random permutation of all rows."""

import numpy as np
from jaxtyping import Int64

from hpcddm.config.data import OrderSettings
from hpcddm.data.bijection import Bijection
from hpcddm.data.orders.base import EpochOrder


class Settings(OrderSettings):
    """Settings of the uniform order, which has none."""


class UniformOrder(EpochOrder[Settings]):
    """Permutation of all rows."""

    def permuted(self, key: str, positions: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        return Bijection(key, self.size)(positions)
