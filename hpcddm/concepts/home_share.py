"""Total against home frequency: is a concept drawn well for its count in all data, or in the expert that serves it?

Log home is log total plus log share, so that the two predictors are correlated by construction, and only the spread of
the share tells them apart. The outcome may be a score, or the difference of the ensemble's and the monolith's: the
monolith sees all data, so that whatever makes concentrated concepts easy (tight clusters are both) cancels.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Num, Shaped

from hpcddm.concepts import pooling
from hpcddm.concepts.overlap import NONE_SHARED, Overlap
from hpcddm.uncertainty.distributions import f_p_value
from hpcddm.uncertainty.jackknife import Estimate, LeastSquares, Moments
from hpcddm.uncertainty.shared_errors import Cosines

OUTCOME, TOTAL, HOME, INTERACTION = range(4)
NAMES = {TOTAL: "log10_total", HOME: "log10_home", INTERACTION: "log10_total x log10_share"}
MODELS = {
    "total": [TOTAL],
    "home": [HOME],
    "total and home": [TOTAL, HOME],
    "interaction": [TOTAL, HOME, INTERACTION],
}
LEAST_CONCEPTS = 10
LEAST_TOLERANCE = 0.01
"""Share of the interaction's variance that total and home must leave, to tell it from them."""


@dataclass(frozen=True)
class Model:
    """Ordinary least squares of the outcome on an intercept and some predictors, one point per concept."""

    name: str
    coefficients: dict[str, Estimate]
    """Outcome per decade of each predictor, the others fixed; of the interaction, per decade squared."""
    r_squared: float | None
    """None where all outcomes are equal."""
    aic_difference: float | None
    """Akaike's criterion less that of the best model here: n log(RSS / n) + 2 k (Burnham and Anderson 2004, section 2).

    None for a model without residuals.
    """


@dataclass(frozen=True)
class Comparison:
    """Partial correlations and nested tests: the part of each frequency beyond the other."""

    home_given_total: Estimate | None
    """Partial correlation of outcome and log home given log total; None where undefined, as the next."""
    total_given_home: Estimate | None
    p_home_added: float | None
    """p-value of the F test that home adds nothing to total; None where nothing is left to explain, as the next."""
    p_total_added: float | None
    p_interaction_added: float | None
    """p-value of the F test that the interaction adds nothing to both; None where it cannot be told from them."""


@dataclass(frozen=True)
class HomeAgainstTotal:
    """Models of an outcome by total and home frequency, and their comparison."""

    concepts: int
    runs: int
    dropped: int
    """Rows without an outcome."""
    zeros: int
    """Concepts whose home expert, or all data, have none of it; they are in no model."""
    spread: dict[str, float]
    """Standard deviation over concepts, in decades: of log total and log home, and of each given the other."""
    models: tuple[Model, ...]
    comparison: Comparison | None
    not_identified: str | None
    """Reason why total and home cannot be told apart: no comparison, and at most the models of one predictor."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return asdict(self)


def home_against_total(
    outcomes: Num[np.ndarray, " n"],
    total: Num[np.ndarray, " n"],
    home: Num[np.ndarray, " n"],
    concepts: Shaped[np.ndarray, " n"],
    runs: Shaped[np.ndarray, " n"] | None = None,
    overlap: Overlap = NONE_SHARED,
    least_spread: float = 0.02,
) -> HomeAgainstTotal:
    """Fit an outcome to log10 total, log10 home, both, and both with the interaction of total and share at home.

    Runs have fixed effects, and a concept's rows are averaged: p-values and criteria count concepts, not seeds, and
    take them for independent. The interaction is the product of the centred log10 total and log10 share; the main
    effects of these are in the model of both, for log share is log home less log total. Intervals are of the jackknife
    over concepts; overlap: of their captions. Total and home are not identified where one, given the other, spreads
    less than `least_spread` decades (0.02 is 5 % of a count): what tells them apart would be noise. Raises ValueError
    where a concept has more at home than in total, or no row an outcome.
    """
    if (home > total).any():
        raise ValueError(f"concept {concepts[np.argmax(home > total)]} has more samples at home than in total")
    pooled = pooling.pool(outcomes, np.column_stack([total, home]), concepts, runs)
    positive = np.all(pooled.frequencies > 0, axis=1)
    points = pooled.per_concept(positive)
    counts = (len(points), pooled.runs, pooled.dropped, len(np.unique(pooled.concepts[~positive])))
    if len(points) < LEAST_CONCEPTS:
        reason = (
            f"this needs {LEAST_CONCEPTS} concepts with samples at home and an outcome, and there are {len(points)}"
        )
        return HomeAgainstTotal(*counts, {}, (), None, reason)
    data = Data.of(_with_interaction(points), overlap.matrix(pooled.names_of(positive)))
    moments = data.moments
    spread = _spread(moments)
    not_identified = _reason_not_identified(spread, least_spread)
    if not_identified:
        single = [name for name in ("total", "home") if spread[name] >= least_spread]
        return HomeAgainstTotal(*counts, spread, _models(data, single), None, not_identified)
    names = list(MODELS) if _tells_interaction(moments) else list(MODELS)[:-1]
    return HomeAgainstTotal(*counts, spread, _models(data, names), _comparison(data), None)


@dataclass(frozen=True)
class Data:
    """Outcome, frequencies and interaction of the concepts in columns, with their moments and overlap."""

    columns: Float[np.ndarray, "c 4"]
    moments: Moments
    cosines: Cosines

    @classmethod
    def of(cls, columns: Float[np.ndarray, "c 4"], cosines: Cosines) -> "Data":
        """Compute the moments."""
        return cls(columns, Moments.of(columns), cosines)

    def fit(self, predictors: list[int]) -> LeastSquares:
        """Return the fit of the outcome to some columns."""
        return LeastSquares.on(self.columns[:, OUTCOME], *self.columns[:, predictors].T, cosines=self.cosines)


def _with_interaction(points: Float[np.ndarray, "c 3"]) -> Float[np.ndarray, "c 4"]:
    log_total, log_share = points[:, TOTAL], points[:, HOME] - points[:, TOTAL]
    return np.column_stack([points, (log_total - log_total.mean()) * (log_share - log_share.mean())])


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


def _tells_interaction(moments: Moments) -> bool:
    own = moments.scatter[0, INTERACTION, INTERACTION]
    return bool(own > 0 and moments.residual(INTERACTION, [TOTAL, HOME]) >= LEAST_TOLERANCE * own)


def _models(data: Data, names: list[str]) -> tuple[Model, ...]:
    criteria = {name: _aic(data.moments, MODELS[name]) for name in names}
    best = min((value for value in criteria.values() if value is not None), default=0.0)
    return tuple(_model(data, name, None if value is None else value - best) for name, value in criteria.items())


def _model(data: Data, name: str, aic_difference: float | None) -> Model:
    predictors, moments = MODELS[name], data.moments
    slopes, fit = moments.slopes(OUTCOME, predictors), data.fit(predictors)
    alone = np.eye(len(predictors) + 1)[1:].tolist()
    coefficients = {
        NAMES[predictor]: fit.interval(slopes[:, column], alone[column]) for column, predictor in enumerate(predictors)
    }
    whole = moments.scatter[0, OUTCOME, OUTCOME]
    r_squared = None if whole == 0 else float(1 - moments.residual(OUTCOME, predictors) / whole)
    return Model(name, coefficients, r_squared, aic_difference)


def _aic(moments: Moments, predictors: list[int]) -> float | None:
    concepts, residual = len(moments.means) - 1, moments.residual(OUTCOME, predictors)
    # Intercept and variance are parameters, too.
    return concepts * math.log(residual / concepts) + 2 * (len(predictors) + 2) if residual > 0 else None


def _comparison(data: Data) -> Comparison:
    moments, fit = data.moments, data.fit([TOTAL, HOME])
    return Comparison(
        home_given_total=fit.correlation(moments.partial(OUTCOME, HOME, TOTAL)),
        total_given_home=fit.correlation(moments.partial(OUTCOME, TOTAL, HOME)),
        p_home_added=_nested_p_value(moments, "total", "total and home"),
        p_total_added=_nested_p_value(moments, "home", "total and home"),
        p_interaction_added=(
            _nested_p_value(moments, "total and home", "interaction") if _tells_interaction(moments) else None
        ),
    )


def _nested_p_value(moments: Moments, smaller: str, larger: str) -> float | None:
    """Return the p-value of F = (RSS0 - RSS1) / (RSS1 / (n - p - 1)), for one predictor more (Seber, Lee 2003, 4.3)."""
    less, more = (moments.residual(OUTCOME, MODELS[name]) for name in (smaller, larger))
    degrees = len(moments.means) - 2 - len(MODELS[larger])
    if less == 0:
        return None
    return f_p_value(math.inf if more == 0 else max(0.0, less - more) / (more / degrees), 1, degrees)
