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

Cosines = Float[np.ndarray, "c c"] | None
"""Overlap of every two concepts; None where no two of them share a caption."""


@dataclass(frozen=True)
class Overlap:
    """Cosines of the captions of every two concepts.

    places: of the concepts in the matrix; those that are not there share nothing.
    """

    places: Mapping[Any, int] = field(default_factory=dict)
    cosines: Float[np.ndarray, "m m"] = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, Sequence[Any]]]) -> "Overlap":
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
        """Return the overlap of some concepts, in their order."""
        names = [*concepts]
        known = [place for place, concept in enumerate(names) if concept in self.places]
        places = [self.places[names[place]] for place in known]
        cosines = np.eye(len(names))
        cosines[np.ix_(known, known)] = self.cosines[np.ix_(places, places)]
        return cosines if (cosines > 0).sum() > len(names) else None


NONE_SHARED = Overlap()
"""Concepts that share no captions."""


def effective_number(cosines: Cosines, concepts: int) -> float:
    """Return how many concepts that share nothing have a mean as certain as that of these: n^2 / sum of the cosines.

    It is n over the design effect of correlated units (Kish 1965, sec. 5.4).
    """
    return float(concepts if cosines is None else concepts**2 / cosines.sum())


def linear_variance(
    cosines: Float[np.ndarray, "c c"],
    outcomes: Float[np.ndarray, " c"],
    design: Float[np.ndarray, "c p"],
    combination: Float[np.ndarray, " p"],
) -> tuple[float, float]:
    """Estimate the variance of a combination of coefficients of least squares whose errors correlate as the cosines.

    With Q the residual maker of the design, R the cosines and a the statistic's weights of the outcomes, it is
    RSS a'Ra / tr(QR), which has tr(QR)^2 / tr(QRQR) degrees of freedom (Satterthwaite 1946). Returns both; infinity
    and 0 where the concepts say the same.
    """
    weights, made = _residual_maker(design)
    remaining = made @ cosines
    trace = float(np.trace(remaining))
    if trace < 1e-9 * len(outcomes):
        return float("inf"), 0.0
    residuals = made @ outcomes
    own = combination @ weights
    return float(residuals @ residuals * (own @ cosines @ own) / trace), _degrees(remaining)


def residual_degrees(cosines: Cosines, design: Float[np.ndarray, "c p"]) -> float:
    """Return the degrees of freedom of such a fit's residuals: concepts less parameters where nothing is shared."""
    return float(len(design) - design.shape[1]) if cosines is None else _degrees(_residual_maker(design)[1] @ cosines)


def _residual_maker(design: Float[np.ndarray, "c p"]) -> tuple[Float[np.ndarray, "p c"], Float[np.ndarray, "c c"]]:
    weights = np.linalg.pinv(design)
    return weights, np.eye(len(design)) - design @ weights


def _degrees(remaining: Float[np.ndarray, "c c"]) -> float:
    squares = float((remaining * remaining.T).sum())
    return float(np.trace(remaining)) ** 2 / squares if squares > 1e-18 else 0.0
