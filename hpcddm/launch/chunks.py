"""Limits of a cluster on jobs, and the cutting of an array into chunks within them."""

from dataclasses import dataclass

DEFAULT_MAX_ARRAY = 1001
"""Slurm's own default of MaxArraySize."""


@dataclass(frozen=True)
class Limits:
    """Limits of a cluster: elements of one array, and further jobs of this user; None stands for no limit."""

    max_array: int = DEFAULT_MAX_ARRAY
    room: int | None = None
    reason: str = ""
    """Source of `room`, in words for the user."""


@dataclass(frozen=True)
class Chunk:
    """The elements [start, stop) of an array, as a 0-based array of their own."""

    start: int
    stop: int
    throttle: int
    """Number of them that may run at the same time."""
    behind: int | None
    """Index of the chunk that must have ended first, so that no more elements than allowed run; None for none."""


def chunks(count: int, max_array: int, max_parallel: int) -> list[Chunk]:
    """Cut `count` elements into as few chunks as possible, of nearly the same size, never empty.

    Whatever runs at the same time adds up to `max_parallel` at most.
    """
    number = -(-count // max_array)
    lanes = min(number, max_parallel)
    pieces, start = [], 0
    for index in range(number):
        # The longer chunks come first, and so do the larger shares of the throttle.
        stop = start + count // number + (index < count % number)
        lane = index % lanes
        share = max_parallel // lanes + (lane < max_parallel % lanes)
        pieces.append(Chunk(start, stop, min(share, stop - start), index - lanes if index >= lanes else None))
        start = stop
    return pieces
