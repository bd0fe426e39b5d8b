"""Base of the orders of training samples, in which every sample comes once in an epoch; and turns of several orders."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Int64

from hpcddm.plugins import S, Variant


class Order(ABC):
    """An endless order of the rows 0 ... size - 1 of a list."""

    @abstractmethod
    def rows(self, indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        """Return the rows at some indices of the order, from any thread."""


class EpochOrder(Variant[S], Order):
    """Order of epochs, each of which has every row once; created as `cls(settings, seed, stream, size)`.

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


class Turns(Order):
    """Order that takes rows of several lists in turn, each list in an order of its own."""

    def __init__(self, lists: Sequence[Int[np.ndarray, " _"]], orders: Sequence[Order]) -> None:
        self._lists, self._orders = lists, orders

    def rows(self, indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        rounds, turns = np.divmod(np.asarray(indices, dtype=np.int64), len(self._lists))
        rows = np.empty_like(rounds)
        for turn in np.unique(turns):
            inside = turns == turn
            rows[inside] = self._lists[turn][self._orders[turn].rows(rounds[inside].tolist())]
        return rows
