"""Blocks of consecutive rows in random order, a few of them mixed at a time, for file systems that dislike far jumps.

At any time a training reads `window_blocks` blocks only; it sees every row once in an epoch, in a new order each time.
"""

import numpy as np
from jaxtyping import Int64

from hpcddm.config.data_variants import OrderSettings
from hpcddm.config.schema import Positive
from hpcddm.data.orders.base import EpochOrder
from hpcddm.randomness.keyed import Bijection
from hpcddm.randomness.streams import BLOCKS, ROTATION, WINDOW


class WindowedOrderSettings(OrderSettings):
    """Rows of a block, and number of blocks of a window, whose rows are mixed."""

    block_size: Positive = 1024
    window_blocks: Positive = 16


class WindowedOrder(EpochOrder[WindowedOrderSettings]):
    """Permutation of the rows of each window, of blocks, and of the place where the first block begins."""

    def permute(self, key: str, positions: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Permute positions: shuffle each window, then the whole blocks, then turn everything to the epoch's start."""
        block, window = self.settings.block_size, self.settings.block_size * self.settings.window_blocks
        windows, inner = np.divmod(positions, window)
        places = np.empty_like(positions)
        for number in np.unique(windows).tolist():
            inside, start = windows == number, number * window
            rows = Bijection(f"{key}/{WINDOW.format(number=number)}", min(window, self.size - start))(inner[inside])
            places[inside] = start + rows
        blocks, offsets = np.divmod(places, block)
        whole = self.size // block
        if whole:
            # The rows that fill no block keep their place, the last one; the rotation makes them others in every epoch.
            is_whole = blocks < whole
            blocks[is_whole] = Bijection(f"{key}/{BLOCKS}", whole)(blocks[is_whole])
        rotation = Bijection(f"{key}/{ROTATION}", self.size)(np.zeros(1, dtype=np.int64))
        return (blocks * block + offsets + rotation) % self.size
