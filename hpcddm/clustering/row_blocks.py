"""Work on rows block by block, on all threads: blocks and their order do not depend on the number of threads."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
ROWS_PER_BLOCK = 4096
AHEAD = 2
"""Blocks per thread that are in memory together."""


def split_rows(count: int) -> list[slice]:
    """Split rows into blocks."""
    return [slice(start, min(start + ROWS_PER_BLOCK, count)) for start in range(0, count, ROWS_PER_BLOCK)]


def map_blocks(work: Callable[[slice], T], count: int, merge: Callable[[slice, T], None]) -> None:
    """Do some work on all blocks of so many rows, and merge the results in the order of the blocks, one at a time.

    As many threads work as torch has; in each of them, torch has one.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            waiting: deque[tuple[slice, Future[T]]] = deque()
            for rows in split_rows(count):
                if len(waiting) == AHEAD * threads:
                    _merge_first(waiting, merge)
                waiting.append((rows, pool.submit(work, rows)))
            while waiting:
                _merge_first(waiting, merge)
    finally:
        torch.set_num_threads(threads)


def _merge_first(waiting: deque[tuple[slice, Future[T]]], merge: Callable[[slice, T], None]) -> None:
    rows, result = waiting.popleft()
    merge(rows, result.result())
