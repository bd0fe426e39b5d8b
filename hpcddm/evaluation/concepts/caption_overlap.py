"""Overlap of concepts: how far the same held-out images decide the scores of two of them.

Captions name several concepts ("golf", "driving"): their scores then may have errors in common, and a mean over them is
less certain than one over as many concepts that share nothing. How much they have in common is not known; the cosine of
their captions is the most that it can be, and intervals are made for that.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from hpcddm.evaluation.statistics.shared_errors import Cosines


@dataclass(frozen=True)
class CaptionOverlap:
    """Cosines of the captions of every two concepts.

    places: of the concepts in the matrix; those that are not there share nothing.
    """

    positions: Mapping[Any, int] = field(default_factory=dict)
    cosines: Float[np.ndarray, "m m"] = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, Sequence[Any]]]) -> "CaptionOverlap":
        """Compute it from concepts and the captions of their images; those of a concept that comes again add up.

        Where a concept's score is a mean over its images, and captions differ in how well they are drawn, the cosine
        is the correlation of the scores' errors. The matrix is positive semidefinite, for it is a Gram matrix.
        """
        captions: dict[Any, Counter[Any]] = {}
        for concept, own in rows:
            captions.setdefault(concept, Counter()).update(own)
        used = Counter(caption for counts in captions.values() for caption in counts)
        columns = {caption: number for number, caption in enumerate(name for name in used if used[name] > 1)}
        shares = np.zeros((len(captions), len(columns)))
        for place, counts in enumerate(captions.values()):
            length = np.linalg.norm([*counts.values()])
            for caption in counts.keys() & columns.keys():
                shares[place, columns[caption]] = counts[caption] / length
        cosines = np.clip(shares @ shares.T, 0, 1)
        np.fill_diagonal(cosines, 1)
        return cls({concept: place for place, concept in enumerate(captions)}, cosines)

    def matrix(self, concepts: Iterable[Any]) -> Cosines:
        """Return the overlap of some concepts, in their order; None where no two of them share a caption."""
        names = [*concepts]
        known = [place for place, concept in enumerate(names) if concept in self.positions]
        places = [self.positions[names[place]] for place in known]
        cosines = np.eye(len(names))
        cosines[np.ix_(known, known)] = self.cosines[np.ix_(places, places)]
        return cosines if (cosines > 0).sum() > len(names) else None


NONE_SHARED = CaptionOverlap()
"""Concepts that share no captions."""
