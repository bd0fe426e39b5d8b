"""Total against home frequency: is a concept drawn well for its count in all data, or in the expert that serves it?

Log home is log total plus log share, so that the two predictors are correlated by construction, and only the spread of
the share tells them apart. The outcome may be a score, or the difference of the ensemble's and the monolith's: the
monolith sees all data, so that whatever makes concentrated concepts easy (tight clusters are both) cancels.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Num, Shaped

from hpcddm.evaluation.concepts import pooling
from hpcddm.evaluation.concepts.caption_overlap import NONE_SHARED, CaptionOverlap
from hpcddm.evaluation.statistics.jackknife import IntervalEstimate, LeastSquares, Moments

OUTCOME, TOTAL, HOME = range(3)
MIN_CONCEPTS = 10


@dataclass(frozen=True)
class Comparison:
    """Partial correlations of the outcome: the part of each frequency beyond the other."""

    home_given_total: IntervalEstimate | None
    """Partial correlation of outcome and log home given log total; None where undefined, as the next."""
    total_given_home: IntervalEstimate | None


@dataclass(frozen=True)
class HomeAgainstTotal:
    """Comparison of total and home frequency as reasons of an outcome."""

    concepts: int
    runs: int
    dropped: int
    """Rows without an outcome."""
    zeros: int
    """Concepts whose home expert, or all data, have none of it; they are not compared."""
    spread: dict[str, float]
    """Standard deviation over concepts, in decades: of log total and log home, and of each given the other."""
    comparison: Comparison | None
    not_identified: str | None
    """Reason why total and home cannot be distinguished; None with a comparison."""


def home_against_total(
    outcomes: Num[np.ndarray, " n"],
    total: Num[np.ndarray, " n"],
    home: Num[np.ndarray, " n"],
    concepts: Shaped[np.ndarray, " n"],
    runs: Shaped[np.ndarray, " n"] | None = None,
    overlap: CaptionOverlap = NONE_SHARED,
    least_spread: float = 0.02,
) -> HomeAgainstTotal:
    """Correlate an outcome with log10 home given log10 total, and with log10 total given log10 home, over concepts.

    Runs have fixed effects, and a concept's rows are averaged. Intervals are of the jackknife over concepts; overlap:
    of their captions. Total and home are not identified where one, given the other, spreads less than `least_spread`
    decades (0.02 is 5 % of a count): what tells them apart would be noise. Raises ValueError where a concept has more
    at home than in total, or no row an outcome.
    """
    if (home > total).any():
        raise ValueError(f"concept {concepts[np.argmax(home > total)]} has more samples at home than in total")
    pooled = pooling.pool(outcomes, np.column_stack([total, home]), concepts, runs)
    positive = np.all(pooled.frequencies > 0, axis=1)
    points = pooled.per_concept(positive)
    counts = (len(points), pooled.runs, pooled.dropped, len(np.unique(pooled.concepts[~positive])))
    if len(points) < MIN_CONCEPTS:
        reason = f"this needs {MIN_CONCEPTS} concepts with samples at home and an outcome, and there are {len(points)}"
        return HomeAgainstTotal(*counts, {}, None, reason)
    moments = Moments.of(points)
    spread = _spread(moments)
    not_identified = _reason_not_identified(spread, least_spread)
    if not_identified:
        return HomeAgainstTotal(*counts, spread, None, not_identified)
    fit = LeastSquares.on(*points.T, cosines=overlap.matrix(pooled.names_of(positive)))
    comparison = Comparison(
        home_given_total=fit.correlation(moments.partial(OUTCOME, HOME, TOTAL)),
        total_given_home=fit.correlation(moments.partial(OUTCOME, TOTAL, HOME)),
    )
    return HomeAgainstTotal(*counts, spread, comparison, None)


def _spread(moments: Moments) -> dict[str, float]:
    concepts = len(moments.means) - 1
    # Given a constant, for which r is undefined, the other one keeps all of its spread.
    left = 1 - np.nan_to_num(moments.pearson(TOTAL, HOME)[0]) ** 2
    total, home = np.diag(moments.scatter[0])[[TOTAL, HOME]]
    squares = {"total": total, "home": home, "total given home": total * left, "home given total": home * left}
    return {name: float(np.sqrt(square / (concepts - 1))) for name, square in squares.items()}


def _reason_not_identified(spread: dict[str, float], least_spread: float) -> str | None:
    for name, text in (
        ("total", "all concepts have nearly the same total frequency"),
        ("home", "all concepts have nearly the same home frequency"),
        ("home given total", "the share at home hardly differs between concepts of one total frequency"),
        ("total given home", "the share at home hardly differs between concepts of one home frequency"),
    ):
        if spread[name] < least_spread:
            return f"not identified: {text} (standard deviation {spread[name]:.3g} decades, least {least_spread:g})"
    return None
