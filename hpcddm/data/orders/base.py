"""Base of the orders of training samples, in which every sample comes once in an epoch; lists and turns of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64, Integer

from hpcddm.config.variants import S, Variant
from hpcddm.data.columns import Column, rows_of


class Order(ABC):
    """An endless order of the samples of a training; size: their number."""

    size: int

    @abstractmethod
    def rows(self, indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        """Return the numbers of the samples at some indices of the order, from any thread."""


class EpochOrder(Variant[S], Order):
    """Order of epochs, each of which has every row 0 ... size - 1 once; created as `cls(settings, seed, stream, size)`.

    It takes no memory: the row at an index is a function of the seed, the stream and the index.
    """

    def __init__(self, settings: S, seed: int, stream: str, size: int) -> None:
        super().__init__(settings)
        self.size, self._key = size, f"{seed}/{stream}/order"

    def rows(self, indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        epochs, positions = np.divmod(np.asarray(indices, dtype=np.int64), self.size)
        rows = np.empty_like(positions)
        for epoch in np.unique(epochs):
            inside = epochs == epoch
            rows[inside] = self.permuted(f"{self._key}/{epoch}", positions[inside])
        return rows

    @abstractmethod
    def permuted(self, key: str, positions: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Permute positions 0 ... size - 1 of one epoch; the permutation is a function of `key`, which names the epoch.

        positions: any of them, in any order.
        """


class Listed(Order):
    """Order of the samples of a list, whose rows another order arranges; numbers: of the samples, (N,)."""

    def __init__(self, numbers: Column | Integer[np.ndarray, " n"], order: Order) -> None:
        self.size, self._numbers, self._order = len(numbers), numbers, order

    def rows(self, indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        return rows_of(self._numbers, self._order.rows(indices)).astype(np.int64)


class Turns(Order):
    """Order that takes samples of several orders in turn."""

    def __init__(self, orders: Sequence[Order]) -> None:
        self.size, self._orders = sum(order.size for order in orders), orders

    def rows(self, indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        rounds, turns = np.divmod(np.asarray(indices, dtype=np.int64), len(self._orders))
        rows = np.empty_like(rounds)
        for turn in np.unique(turns):
            inside = turns == turn
            rows[inside] = self._orders[turn].rows(rounds[inside].tolist())
        return rows
