"""Home frequency within concepts: the same concept in runs whose partitions gave it other shares at home.

Between concepts, whatever makes one easy may also make it concentrated. Within a concept, only the partition differs.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int64, Num, Shaped

from hpcddm.concepts.overlap import NONE_SHARED, Overlap
from hpcddm.concepts.pooling import group_means, without_run_effects
from hpcddm.uncertainty.jackknife import Estimate, LeastSquares

LEAST_CONCEPTS = 10


@dataclass(frozen=True)
class HomeWithinConcepts:
    """Least squares of the outcome on log10 home, with an effect of every concept and of every run."""

    concepts: int
    """Concepts that several runs have scored."""
    runs: int
    spread: float
    """Standard deviation of log10 home within concepts, in decades."""
    slope: Estimate | None
    """Outcome per decade of home frequency; the interval is over concepts."""
    not_identified: str | None
    """Reason why there is no slope."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return asdict(self)


def home_within_concepts(
    outcomes: Num[np.ndarray, " n"],
    home: Num[np.ndarray, " n"],
    concepts: Shaped[np.ndarray, " n"],
    runs: Shaped[np.ndarray, " n"],
    overlap: Overlap = NONE_SHARED,
    least_spread: float = 0.02,
) -> HomeWithinConcepts:
    """Regress the deviations from concept and run of the outcome on those of log10 home (Frisch, Waugh 1933).

    Rows without an outcome, and those without samples at home, are left out. The total needs no column: runs of the
    same data have the same, and the concept's effect holds it. The slope is not identified where log10 home spreads
    less than `least_spread` decades within concepts, as where all runs share a partition.
    """
    kept = np.isfinite(outcomes) & (home > 0)
    scored, concept = np.unique(concepts[kept], return_inverse=True)
    names, run = np.unique(runs[kept], return_inverse=True)
    rows = np.bincount(concept)
    several = int((rows > 1).sum())
    if several < LEAST_CONCEPTS:
        reason = f"this needs {LEAST_CONCEPTS} concepts with an outcome in several runs, and there are {several}"
        return HomeWithinConcepts(several, len(names), 0.0, None, reason)
    outcome = _deviations(outcomes[kept].astype(np.float64), concept, run)
    log_home = _deviations(np.log10(home[kept]), concept, run)
    squares = np.bincount(concept, log_home * log_home)[rows > 1]
    products = np.bincount(concept, log_home * outcome)[rows > 1]
    spread = float(np.sqrt(squares.sum() / max(1, len(concept) - len(rows) - len(names) + 1)))
    if spread < least_spread:
        reason = (
            "not identified: the runs' partitions give concepts nearly the same share at home "
            f"(standard deviation {spread:.3g} decades, least {least_spread:g})"
        )
        return HomeWithinConcepts(several, len(names), spread, None, reason)
    # Runs' effects stay those of all concepts when one is left out, which moves them by a part of their own number.
    slopes = (products.sum() - np.append(0, products)) / (squares.sum() - np.append(0, squares))
    # The same slope is that of one point per concept, through the origin.
    lengths = np.sqrt(squares)
    outcomes_of_concepts = np.divide(products, lengths, out=np.zeros(several), where=lengths > 0)
    fit = LeastSquares(outcomes_of_concepts, lengths[:, None], overlap.matrix(scored[rows > 1]))
    return HomeWithinConcepts(several, len(names), spread, fit.interval(slopes, [1.0]), None)


def _deviations(
    column: Float[np.ndarray, " n"], concepts: Int64[np.ndarray, " n"], runs: Int64[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    even = without_run_effects(column, concepts, runs)
    return even - group_means(even[:, None], concepts)[concepts, 0]
