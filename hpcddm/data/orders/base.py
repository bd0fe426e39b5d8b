"""Bases of the orders of training samples: an epoch visits every sample once. Lists and alternating orders."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64, Integer

from hpcddm.config.variants import S, Variant
from hpcddm.data.columns import Column, gather_rows
from hpcddm.randomness.streams import EPOCH


class Order(ABC):
    """Endless order of the samples of a training.

    Attributes:
        size: Number of samples.
    """

    size: int

    @abstractmethod
    def sample_numbers(self, indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        """Return the numbers of the samples at some indices of the order; thread-safe.

        Args:
            indices: N indices in the order of training, from 0.

        Returns:
            Numbers of the samples, (N,).
        """


class EpochOrder(Variant[S], Order):
    """Endless order made of epochs; every epoch visits each row 0 ... size - 1 once.

    It needs no memory: the row at an index is a function of the seed, the stream and the index.

    Args:
        settings: Settings of the order.
        seed: Seed of the experiment.
        stream: Stream of the training.
        size: Number of rows.

    Examples:
        >>> from hpcddm.data.orders.uniform import UniformOrder, UniformOrderSettings
        >>> order = UniformOrder(UniformOrderSettings(name="uniform"), seed=0, stream="train/expert-0", size=5)
        >>> first_epoch, second_epoch = order.sample_numbers(range(5)), order.sample_numbers(range(5, 10))
        >>> sorted(first_epoch.tolist()), sorted(second_epoch.tolist())
        ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    """

    def __init__(self, settings: S, seed: int, stream: str, size: int) -> None:
        super().__init__(settings)
        self.size, self._stream = size, f"{seed}/{stream}"

    def sample_numbers(self, indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        """Return the rows at some indices, (N,)."""
        epochs, positions = np.divmod(np.asarray(indices, dtype=np.int64), self.size)
        rows = np.empty_like(positions)
        for epoch in np.unique(epochs):
            inside = epochs == epoch
            rows[inside] = self.permute(f"{self._stream}/{EPOCH.format(epoch=epoch)}", positions[inside])
        return rows

    @abstractmethod
    def permute(self, key: str, positions: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Permute positions of one epoch.

        Args:
            key: Name of the epoch; the permutation of 0 ... size - 1 is a function of the key.
            positions: (N,) positions in the epoch, in any order.

        Returns:
            Row at each position, (N,).
        """


class ListOrder(Order):
    """Order of the samples on a list.

    Args:
        numbers: Numbers of the samples on the list, (N,).
        order: Order of the rows of the list.
    """

    def __init__(self, numbers: Column | Integer[np.ndarray, " n"], order: Order) -> None:
        self.size, self._numbers, self._order = len(numbers), numbers, order

    def sample_numbers(self, indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        """Return the numbers of the samples at some indices, (N,)."""
        return gather_rows(self._numbers, self._order.sample_numbers(indices)).astype(np.int64)


class RoundRobin(Order):
    """Order that takes a sample of each of several orders in turn.

    Args:
        orders: The orders.

    Examples:
        >>> from hpcddm.data.orders.uniform import UniformOrder, UniformOrderSettings
        >>> settings = UniformOrderSettings(name="uniform")
        >>> lists = {"cats": np.array([5]), "dogs": np.array([8])}
        >>> orders = [ListOrder(numbers, UniformOrder(settings, 0, name, 1)) for name, numbers in lists.items()]
        >>> RoundRobin(orders).sample_numbers(range(4))
        array([5, 8, 5, 8])
    """

    def __init__(self, orders: Sequence[Order]) -> None:
        self.size, self._orders = sum(order.size for order in orders), orders

    def sample_numbers(self, indices: Sequence[int]) -> Int64[np.ndarray, " n"]:
        """Return the numbers of the samples at some indices, (N,)."""
        rounds, turns = np.divmod(np.asarray(indices, dtype=np.int64), len(self._orders))
        numbers = np.empty_like(rounds)
        for turn in np.unique(turns):
            inside = turns == turn
            numbers[inside] = self._orders[turn].sample_numbers(rounds[inside].tolist())
        return numbers
