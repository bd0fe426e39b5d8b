"""Estimates with 95 % intervals over observations, by the jackknife that leaves out one at a time.

The intervals are value +- t * standard error, with the jackknife's standard error (Efron and Stein 1981) and the
quantile of Student's t; those of correlations are symmetric in Fisher's z (1915). In simulations of slope and r
with 12, 30 and 100 observations of equal and of unequal variance they held the truth in 93-97 % of the sets,
percentiles of 1,000 bootstrap samples over observations in 89-96 % and bias-corrected ones (BCa) in 90-97 %: these
are too short for few observations, and need a seed.

Observations with errors in common say less than as many others. `cosines` are the correlations of their errors at
most (of concepts: `evaluation.concepts.overlap`), and the variance is the greater one of two: the jackknife's, and for
what is linear in the outcomes that of least squares with such errors, for correlations the sum over pairs weighted by
the cosines (as in Conley 1999).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from hpcddm.evaluation.statistics.shared_errors import Cosines, linear_variance, residual_degrees

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A statistic and its 95 % interval over observations; no interval where it is undefined without one of them."""

    value: float
    low: float | None
    high: float | None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return asdict(self)


@dataclass(frozen=True)
class LeastSquares:
    """Fit of outcomes to a design of observations by parameters, with what their errors have in common."""

    outcomes: Float[np.ndarray, " c"]
    design: Float[np.ndarray, "c p"]
    cosines: Cosines = None

    @classmethod
    def on(
        cls, outcomes: Float[np.ndarray, " c"], *predictors: Float[np.ndarray, " c"], cosines: Cosines
    ) -> "LeastSquares":
        """Fit on an intercept and some predictors."""
        return cls(outcomes, np.column_stack([np.ones(len(outcomes)), *predictors]), cosines)

    def interval(self, statistic: Float[np.ndarray, " c1"], combination: Sequence[float]) -> Estimate:
        """Estimate a combination of its coefficients from all observations, and from those that leave out each one.

        Raises ValueError where the statistic of all observations is undefined.
        """
        variance, degrees = _jackknife_variance(statistic), residual_degrees(self.cosines, self.design)
        if self.cosines is not None:
            shared, degrees = linear_variance(
                self.cosines, self.outcomes, self.design, np.array(combination, dtype=np.float64)
            )
            variance = max(variance, shared)
        return _estimate(statistic, variance, degrees)

    def correlation(self, statistic: Float[np.ndarray, " c1"]) -> Estimate | None:
        """Compute it for a correlation of the outcome and a predictor, given the others; None where it is undefined.

        The interval is symmetric in Fisher's z = artanh(r).
        """
        if not np.isfinite(statistic[0]):
            return None
        limit = 1 - 1e-15
        in_z, degrees = np.arctanh(np.clip(statistic, -limit, limit)), residual_degrees(self.cosines, self.design)
        variance = _jackknife_variance(in_z)
        if self.cosines is not None and degrees >= 1:
            deviations = in_z[1:] - in_z[1:].mean()
            # Residuals are smaller than errors, the more so the fewer degrees of freedom are left.
            weighted = (1 + self.design.shape[1] / degrees) * float(deviations @ self.cosines @ deviations)
            variance = max(variance, (1 - 1 / len(deviations)) * weighted)
        estimate = _estimate(in_z, variance, degrees)
        low, high = (None if end is None else float(np.tanh(end)) for end in (estimate.low, estimate.high))
        return Estimate(float(statistic[0]), low, high)


def interval(statistic: Float[np.ndarray, " c1"], degrees: float) -> Estimate:
    """Compute the estimate of a statistic of all, first, from those that leave out each part of the data in turn.

    degrees: of freedom, below 1 there is no interval. Raises ValueError where the statistic of all is undefined.
    """
    return _estimate(statistic, _jackknife_variance(statistic), degrees)


def _jackknife_variance(statistic: Float[np.ndarray, " c1"]) -> float:
    """Return the jackknife's variance of a statistic: NaN where it is undefined without one of the observations."""
    left_out = statistic[1:]
    return float((len(left_out) - 1) * np.mean(np.square(left_out - left_out.mean()))) if len(left_out) else math.nan


def _estimate(statistic: Float[np.ndarray, " c1"], variance: float, degrees: float) -> Estimate:
    """Make the estimate; below one degree of freedom there is no interval."""
    value = float(statistic[0])
    if not np.isfinite(value):
        raise ValueError("the statistic of all observations is undefined, so that it has no interval")
    # What rounding takes off one degree of freedom is not meant.
    if degrees < 1 - 1e-9 or not np.isfinite(variance):
        return Estimate(value, None, None)
    half = float(stdtrit(max(degrees, 1.0), (1 + CONFIDENCE) / 2) * math.sqrt(variance))
    return Estimate(value, value - half, value + half)


def mean(values: Float[np.ndarray, " c"], cosines: Cosines = None) -> Estimate:
    """Estimate the mean of at least one observation; where none share errors its interval is that of the t test."""
    if len(values) < 2:
        return Estimate(float(values.mean()), None, None)
    left_out = np.append(values.mean(), (values.sum() - values) / (len(values) - 1))
    return LeastSquares(values, np.ones((len(values), 1)), cosines).interval(left_out, [1.0])


@dataclass(frozen=True)
class Moments:
    """Means and scatter of q columns, of all observations first, then of those that leave out each one.

    means: (c + 1, q); scatter: (c + 1, q, q), the sums of the centred products. Leaving out observation i takes
    n / (n - 1) d_i d_i^T off the scatter, where d_i is its deviation from the mean of all n (Chan, Golub, LeVeque 1983,
    eq. 1.5b).
    """

    means: Float[np.ndarray, "c1 q"]
    scatter: Float[np.ndarray, "c1 q q"]

    @classmethod
    def of(cls, columns: Float[np.ndarray, "c q"]) -> "Moments":
        """Compute them for at least two observations."""
        n = len(columns)
        centre = columns.mean(0)
        deviations = columns - centre
        # Equal values differ from their mean by its rounding, which is no spread.
        deviations[:, np.abs(deviations).max(0) <= 1e-12 * np.abs(columns).max(0)] = 0
        scatter = deviations.T @ deviations
        without = scatter - n / (n - 1) * deviations[:, :, None] * deviations[:, None, :]
        # Nor is what rounding leaves of a column that is constant without one of the observations.
        diagonal = np.einsum("cii->ci", without)
        diagonal[diagonal < 1e-12 * np.diag(scatter)] = 0
        means = np.concatenate([centre[None], centre - deviations / (n - 1)])
        return cls(means, np.concatenate([scatter[None], without]))

    def pearson(self, first: int, second: int) -> Float[np.ndarray, " c1"]:
        """Compute Pearson's r of two columns; NaN where one is constant."""
        product = self.scatter[:, first, first] * self.scatter[:, second, second]
        return np.clip(_divided(self.scatter[:, first, second], np.sqrt(product)), -1, 1)

    def partial(self, first: int, second: int, given: int) -> Float[np.ndarray, " c1"]:
        """Compute the partial correlation of two columns given a third: r of the residuals after regression on it."""
        ab, ag, bg = self.pearson(first, second), self.pearson(first, given), self.pearson(second, given)
        return np.clip(_divided(ab - ag * bg, np.sqrt(np.clip((1 - ag**2) * (1 - bg**2), 0, None))), -1, 1)

    def slopes(self, outcome: int, predictors: list[int]) -> Float[np.ndarray, "c1 p"]:
        """Fit the outcome by ordinary least squares with an intercept; NaN where the predictors are collinear."""
        within = self.scatter[:, predictors][:, :, predictors]
        scales = np.sqrt(np.einsum("cii->ci", within))
        solvable = (scales > 0).all(1)
        slopes = np.full(scales.shape, np.nan)
        correlations = within[solvable] / scales[solvable, :, None] / scales[solvable, None, :]
        solvable[solvable] = np.linalg.det(correlations) > 1e-10
        shared = self.scatter[solvable][:, predictors, outcome]
        slopes[solvable] = np.linalg.solve(within[solvable], shared[:, :, None])[:, :, 0]
        return slopes


def _divided(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.divide(numerator, denominator, out=np.full_like(denominator, np.nan), where=denominator > 0)
