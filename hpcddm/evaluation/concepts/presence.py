"""Presence: which samples have which concepts, by their captions, their images, or both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.columns import Column, RaggedColumn

MENTIONED, TAGGED, TAG_SCORE = "concepts", "concepts", "scores"
"""Columns of the concepts that captions name, of the concepts that images show most, and of the latter's scores."""
CONCEPT_TYPE, SCORE_TYPE = np.dtype("<u4"), np.dtype("<f2")
TEXT, IMAGE, JOINT = "text", "image", "joint"
KINDS = (TEXT, IMAGE, JOINT)
"""Samples whose captions name a concept, whose images show it, and both."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of a sample and a concept that it has, in the order of the samples, then of the concepts."""

    samples: Int64[np.ndarray, " m"]
    """Indices of the samples among the requested ones."""
    concepts: Int64[np.ndarray, " m"]


@dataclass(frozen=True)
class Presence:
    """Concepts of the samples of a split.

    mentions: None where no caption was looked at. tags: concepts and scores of every image, its largest. thresholds:
    score of every concept from which on an image shows it.
    """

    size: int
    """Number of all concepts."""
    mentions: RaggedColumn | None
    tags: tuple[Column, Column]
    thresholds: Float32[np.ndarray, " v"]

    def pairs(self, numbers: range) -> dict[str, Pairs]:
        """Return the pairs of consecutive samples by kind; without captions an image alone says all, in each kind."""
        image = self._by_image(numbers)
        text = image if self.mentions is None else self._by_text(self.mentions, numbers)
        joint = np.intersect1d(text, image, assume_unique=True)
        codes = {TEXT: text, IMAGE: image, JOINT: joint}
        return {kind: Pairs(code // self.size, code % self.size) for kind, code in codes.items()}

    def blocks(self, count: int) -> Iterator[tuple[range, dict[str, Pairs]]]:
        """Yield consecutive blocks of the first `count` samples with their pairs."""
        for block in split_into_blocks(range(count)):
            yield block, self.pairs(block)

    def gather(
        self, count: int, kind: str, pause: Callable[[], None], wanted: Int64[np.ndarray, " c"] | None = None
    ) -> Pairs:
        """Return the pairs of the first samples.

        Args:
            count: Number of samples.
            kind: One of `KINDS`.
            pause: Called for every block of samples.
            wanted: Concepts, by default all.
        """
        samples, concepts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for block, pairs in self.blocks(count):
            pause()
            own = pairs[kind]
            kept = np.ones(len(own.concepts), bool) if wanted is None else np.isin(own.concepts, wanted)
            samples.append(own.samples[kept] + block.start)
            concepts.append(own.concepts[kept])
        return Pairs(np.concatenate(samples), np.concatenate(concepts))

    def _by_text(self, mentions: RaggedColumn, numbers: range) -> Int64[np.ndarray, " m"]:
        concepts, lengths = mentions.flat(numbers)
        places = np.repeat(np.arange(len(numbers), dtype=np.int64), lengths)
        return np.unique(places * self.size + concepts.astype(np.int64))

    def _by_image(self, numbers: range) -> Int64[np.ndarray, " m"]:
        concepts, scores = (column.gather(numbers) for column in self.tags)
        # In float16, as the scores are: a score that is its concept's threshold is not below it by rounding.
        shown = scores >= self.thresholds.astype(SCORE_TYPE)[concepts]
        places, ranks = np.nonzero(shown)
        return np.unique(places * self.size + concepts[places, ranks].astype(np.int64))
