"""Pairs of image and concept, and orders and choices of images in which every concept counts as much as the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, Integer

from hpcddm.randomness import keyed
from hpcddm.randomness.keyed import Bijection
from hpcddm.randomness.streams import PAIR_CONCEPT, PAIR_IMAGE


@dataclass(frozen=True)
class TrainingPairs:
    """Pairs of a training image and a concept of its caption: (rows[i], concepts[i]), in row order, each pair once."""

    rows: Int64[np.ndarray, " p"]
    concepts: Int64[np.ndarray, " p"]

    @classmethod
    def of_lists(cls, concepts: Sequence[Int64[np.ndarray, " _"]]) -> "TrainingPairs":
        """Make pairs of the concepts of every row."""
        lists = [np.unique(own) for own in concepts]
        rows = np.repeat(np.arange(len(lists)), [len(own) for own in lists])
        return cls(rows, np.concatenate([*lists, np.empty(0, np.int64)]).astype(np.int64))

    def where(self, kept: Bool[np.ndarray, " n"]) -> "TrainingPairs":
        """Return the pairs of the rows that are kept."""
        chosen = kept[self.rows]
        return TrainingPairs(self.rows[chosen], self.concepts[chosen])

    def among(self, rows: Int64[np.ndarray, " n"]) -> "TrainingPairs":
        """Return the pairs of some rows, in ascending order, each numbered by its place among them."""
        chosen = np.isin(self.rows, rows)
        return TrainingPairs(np.searchsorted(rows, self.rows[chosen]), self.concepts[chosen])

    def of_rows(self, rows: Int64[np.ndarray, " n"]) -> tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " m"]]:
        """Return the pairs of some rows: the place of the row in `rows`, and the concept."""
        starts, ends = np.searchsorted(self.rows, rows), np.searchsorted(self.rows, rows, "right")
        counts = ends - starts
        places = np.repeat(np.arange(len(rows)), counts)
        inside = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        return places, self.concepts[starts[places] + inside]

    def balanced(self, most: int, seed: int, stream: str) -> Int64[np.ndarray, " n"]:
        """Choose at most `most` rows at random: one of each concept, then a second one of each, and so on.

        All rows of rare concepts are therefore chosen before frequent concepts have a large share. The chosen rows are
        returned in ascending order.
        """
        rows = np.unique(self.rows)
        order = Bijection(f"{seed}/{stream}", max(len(rows), 1))(np.searchsorted(rows, self.rows))
        by_concept = np.lexsort((order, self.concepts))
        counts = np.bincount(self.concepts)
        turns = np.empty(len(self.rows), np.int64)
        turns[by_concept] = np.arange(len(self.rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.full(len(rows), len(self.rows))
        np.minimum.at(first, np.searchsorted(rows, self.rows), turns)
        random = Bijection(f"{seed}/{stream}", max(len(rows), 1))(np.arange(len(rows)))
        return np.sort(rows[np.lexsort((random, first))[:most]])


class BalancedOrder:
    """Endless order of pairs: a concept that occurs, each as likely as the others, then one of its rows.

    A pair is a function of seed, stream and index alone.
    """

    def __init__(self, pairs: TrainingPairs, seed: int, stream: str) -> None:
        self._seed, self._stream = seed, stream
        self.concepts, self._counts = np.unique(pairs.concepts, return_counts=True)
        """Concepts that occur, in ascending order."""
        self._rows = pairs.rows[np.argsort(pairs.concepts, kind="stable")]
        self._starts = np.cumsum(self._counts) - self._counts

    def at(self, indices: range) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
        """Return the rows at some indices, and the places of their concepts in `concepts`."""
        places = self._drawn(PAIR_CONCEPT, indices, np.int64(len(self.concepts)))
        return self._rows[self._starts[places] + self._drawn(PAIR_IMAGE, indices, self._counts[places])], places

    def _drawn(self, use: str, indices: range, sizes: Integer[np.ndarray, " n"] | np.int64) -> Int64[np.ndarray, " n"]:
        """Draw a number 0 ... size - 1 for each index."""
        uniform = keyed.uniform(self._seed, f"{self._stream}/{use}", indices).numpy().astype(np.float64)
        return (uniform * sizes).astype(np.int64)
