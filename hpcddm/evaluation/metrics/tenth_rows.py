"""Tenths of a set of images, in their order: the parts that a jackknife leaves out one at a time."""

import numpy as np

TENTHS = 10


def tenth_rows(count: int) -> list[slice]:
    """Return the rows of every tenth: [count * tenth // 10, count * (tenth + 1) // 10).

    Examples:
        >>> [rows.stop - rows.start for rows in tenth_rows(25)]
        [2, 3, 2, 3, 2, 3, 2, 3, 2, 3]
    """
    bounds = [count * tenth // TENTHS for tenth in range(TENTHS + 1)]
    return [slice(start, stop) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]


def tenth_of_rows(count: int) -> np.ndarray:
    """Return the number of every row's tenth, (count,)."""
    return np.repeat(np.arange(TENTHS), [rows.stop - rows.start for rows in tenth_rows(count)])


def without_rows(values: np.ndarray, tenth: int) -> np.ndarray:
    """Return a copy of the values without the rows of a tenth."""
    rows = tenth_rows(len(values))[tenth]
    return np.concatenate([values[: rows.start], values[rows.stop :]])


def kept_rows(count: int) -> np.ndarray:
    """Return which rows are kept, (11, count) bool: all in the first line, then those outside of each tenth."""
    kept = tenth_of_rows(count) != np.arange(TENTHS)[:, None]
    return np.concatenate([np.ones((1, count), dtype=bool), kept])
