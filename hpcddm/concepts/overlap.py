"""Overlap of concepts: how far the same held-out images decide the scores of two of them.

Captions name several concepts ("golf", "driving"): their scores then have errors in common, and a mean over them is
less certain than one over as many concepts that share nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Overlap:
    """Captions of the held-out images by which concepts are scored.

    captions: by concept, how many of its images have each caption; concepts that are not there share nothing.
    """

    captions: Mapping[Any, Mapping[Any, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, Sequence[Any]]]) -> "Overlap":
        """Collect it from concepts and the captions of their images; those of a concept that comes again add up."""
        captions: dict[Any, Counter[Any]] = {}
        for concept, own in rows:
            captions.setdefault(concept, Counter()).update(own)
        return cls(captions)

    def matrix(self, concepts: Sequence[Any] | np.ndarray) -> Float[np.ndarray, "c c"] | None:
        """Compute the cosine of the captions of every two concepts; None where no two of them share one.

        Where a concept's score is a mean over its images, and captions differ in how well they are drawn, this is the
        correlation of the scores' errors. It is positive semidefinite, for it is a Gram matrix.
        """
        own = [self.captions.get(concept, {}) for concept in concepts]
        numbers = {caption: number for number, caption in enumerate({caption for each in own for caption in each})}
        counts = np.zeros((len(own), len(numbers)))
        for place, each in enumerate(own):
            counts[place, [numbers[caption] for caption in each]] = list(each.values())
        if (np.count_nonzero(counts, axis=0) < 2).all():
            return None
        lengths = np.linalg.norm(counts, axis=1, keepdims=True)
        units = np.divide(counts, lengths, out=counts, where=lengths > 0)
        cosines = np.clip(units @ units.T, 0, 1)
        np.fill_diagonal(cosines, 1)
        return cosines


NONE_SHARED = Overlap()
"""Concepts that share no captions."""


def independent(overlap: Float[np.ndarray, "c c"] | None, concepts: int) -> float:
    """Return how many concepts that share nothing have a mean as certain as that of these: n^2 / sum of the overlaps.

    It is n over the design effect of correlated units (Kish 1965, sec. 5.4).
    """
    return float(concepts if overlap is None else concepts**2 / overlap.sum())
