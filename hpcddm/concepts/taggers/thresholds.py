"""Thresholds of scores between -1 and 1: from which one on an image counts as showing a concept."""

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from hpcddm.errors import require

BINS = 2000
"""Bins of the scores, 0.001 wide: memory does not grow with the number of images."""
PRIOR = 5
"""Mentions that every concept is lent from all concepts together: those with few depend on their own scores less."""


class ScoreCounts:
    """Counts of the scores of every concept by bins, of all images and of those whose captions mention it."""

    def __init__(self, concepts: int) -> None:
        self.all, self.mentioned = (np.zeros((concepts, BINS), np.int64) for _ in range(2))

    def add(self, scores: Float32[np.ndarray, "n v"], mentions: Bool[np.ndarray, "n v"]) -> None:
        """Count the scores of some images."""
        bins = np.clip((scores + 1) * (BINS / 2), 0, BINS - 1).astype(np.int64)
        bins += np.arange(len(self.all)) * BINS
        self.all += _counted(bins, self.all.shape)
        self.mentioned += _counted(bins[mentions], self.all.shape)

    def thresholds(self) -> Float32[np.ndarray, " v"]:
        """Return the score of every concept with the best F1 of what the captions mention.

        The counts of a concept are its own ones and, for 5 mentions, those of all concepts together: the best F1 of a
        concept that scores do not tell may be that of showing it everywhere. Raises `UserError` without any mention.
        """
        mentions = self.mentioned.sum()
        require(bool(mentions), "concepts.tagger: no caption that was read mentions a concept")
        lent = PRIOR / mentions
        return best(*(counts + lent * counts.sum(0) for counts in (self.all, self.mentioned))).astype(np.float32)


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


def _counted(bins: Int64[np.ndarray, "..."], shape: tuple[int, int]) -> Int64[np.ndarray, "v b"]:
    return np.bincount(bins.ravel(), minlength=shape[0] * shape[1]).reshape(shape)
