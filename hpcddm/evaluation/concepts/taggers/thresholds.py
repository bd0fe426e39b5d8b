"""Thresholds of scores between -1 and 1, from which on an image counts as showing a concept."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from hpcddm.data.catalog import split_into_blocks
from hpcddm.errors import require

BINS = 2000
"""Bins of the scores, 0.001 wide: memory does not grow with the number of images."""
CONCEPTS_AT_ONCE = 1024
"""Concepts whose bins are held in 64 bits at a time."""
PRIOR = 5
"""Mentions that every concept is lent from all concepts together: those with few depend on their own scores less."""


class ScoreCounts:
    """Counts of the scores of every concept by bins, of all images and of those whose captions mention it.

    8 KB for each concept, and 8 bytes for each mention.
    """

    def __init__(self, concepts: int) -> None:
        self._all = np.zeros((concepts, BINS), np.int32)
        self._mentioned = [np.empty(0, np.int64)]
        """Bins of the scores of mentioned concepts, of all concepts one after the other."""

    def add(self, scores: Float32[np.ndarray, "n v"], mentions: Bool[np.ndarray, "n v"]) -> None:
        """Count the scores of some images."""
        for part in self._parts():
            columns = slice(part.start, part.stop)
            bins = np.clip((scores[:, columns] + 1) * (BINS / 2), 0, BINS - 1).astype(np.int64)
            bins += np.arange(len(part)) * BINS
            self._all[columns] += _counted(bins, len(part))
            self._mentioned.append(bins[mentions[:, columns]] + part.start * BINS)

    def thresholds(self) -> Float32[np.ndarray, " v"]:
        """Return the threshold of every concept with the best F1 against the mentions in captions.

        The counts of a concept are its own ones and, for 5 mentions, those of all concepts together: the best F1 of a
        concept that scores do not tell may be that of showing it everywhere. Raises `UserError` without any mention.
        """
        mentioned = np.sort(np.concatenate(self._mentioned))
        require(bool(len(mentioned)), "concepts.tagger: no caption that was read mentions a concept")
        lent = PRIOR / len(mentioned)
        lent_all, lent_right = lent * self._all.sum(0), lent * _counted(mentioned % BINS, 1)[0]
        chosen = np.empty(len(self._all), np.float32)
        for part in self._parts():
            own = slice(part.start, part.stop)
            first, last = np.searchsorted(mentioned, (part.start * BINS, part.stop * BINS))
            right = _counted(mentioned[first:last] - part.start * BINS, len(part))
            chosen[own] = best(self._all[own] + lent_all, right + lent_right)
        return chosen

    def _parts(self) -> Iterator[range]:
        return split_into_blocks(range(len(self._all)), CONCEPTS_AT_ONCE)


def best(every: Float64[np.ndarray, "v b"], right: Float64[np.ndarray, "v b"]) -> Float64[np.ndarray, " v"]:
    """Return the edge of bins with the best F1, 2 TP / (2 TP + FP + FN); the middle one of several beside each other.

    every: counts of scores by ascending bins, which need not be whole numbers; right: of those that are right.
    """
    hits, taken = (np.cumsum(counts[:, ::-1], 1)[:, ::-1] for counts in (right, every))
    f1 = 2 * hits / np.maximum(taken + right.sum(1, keepdims=True), 1)
    is_best = f1 == f1.max(1, keepdims=True)
    first = is_best.argmax(1)
    ends = ~is_best & (np.arange(f1.shape[1]) > first[:, None])
    last = np.where(ends.any(1), ends.argmax(1) - 1, f1.shape[1] - 1)
    return (first + last) / f1.shape[1] - 1


def _counted(bins: Int64[np.ndarray, "..."], concepts: int) -> Int64[np.ndarray, "v b"]:
    return np.bincount(bins.ravel(), minlength=concepts * BINS).reshape(concepts, BINS)
