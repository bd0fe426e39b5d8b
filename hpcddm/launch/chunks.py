"""How many jobs a cluster takes, and how an array is cut into chunks that it takes."""

from dataclasses import dataclass

DEFAULT_MAX_ARRAY = 1001
"""Slurm's own default of MaxArraySize."""


@dataclass(frozen=True)
class Limits:
    """What a cluster takes: elements of one array, and further jobs of this user; None is without limit."""

    max_array: int = DEFAULT_MAX_ARRAY
    room: int | None = None
    reason: str = ""
    """Where `room` comes from, in the words for the user."""


@dataclass(frozen=True)
class Chunk:
    """The elements [start, stop) of an array, as a 0-based array of their own."""

    start: int
    stop: int
    throttle: int
    """How many of them may run at the same time."""
    behind: int | None
    """The number of the chunk that must have ended first, because more chunks than that may not run."""


def chunks(count: int, max_array: int, max_parallel: int) -> list[Chunk]:
    """Cut `count` elements into as few chunks as possible, of nearly the same size, never empty.

    Whatever runs at the same time adds up to `max_parallel` at most.
    """
    number = -(-count // max_array)
    lanes = min(number, max_parallel)
    found, start = [], 0
    for index in range(number):
        # The longer chunks come first, and so do the larger shares of the throttle.
        stop = start + count // number + (index < count % number)
        lane = index % lanes
        share = max_parallel // lanes + (lane < max_parallel % lanes)
        found.append(Chunk(start, stop, min(share, stop - start), index - lanes if index >= lanes else None))
        start = stop
    return found
