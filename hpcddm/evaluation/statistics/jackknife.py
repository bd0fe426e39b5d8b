"""Estimates with 95 % intervals over observations, by the leave-one-out jackknife.

The intervals are value +- t * standard error, with the jackknife's standard error (Efron and Stein 1981) and the
quantile of Student's t. For correlations the interval is symmetric in Fisher's z (1915). In simulations of slope and r
with 12, 30 and 100 observations of equal and of unequal variance, they covered the true value in 93-97 % of the sets.
Percentiles of 1,000 bootstrap samples over observations covered it in 89-96 %, bias-corrected ones (BCa) in 90-97 %.
The bootstrap intervals are too short for few observations, and they need a seed.

Observations with shared errors carry less information than independent ones. `cosines` are upper bounds on the
correlations of their errors (for concepts see `evaluation.concepts.overlap`). The variance is then the larger of two:
the jackknife's, and a second one. For statistics linear in the outcomes, the second is that of least squares with such
errors; for correlations, it is the sum over pairs weighted by the cosines (as in Conley 1999).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from hpcddm.evaluation.statistics.shared_errors import Cosines, linear_variance, residual_degrees

CONFIDENCE = 0.95


@dataclass(frozen=True)
class IntervalEstimate:
    """A statistic and its 95 % interval over observations.

    The interval is None if the statistic is undefined without one of the observations.

    Examples:
        >>> estimate = mean(np.array([1.0, 2.0, 3.0, 4.0]))
        >>> estimate.value, round(estimate.low, 2), round(estimate.high, 2)
        (2.5, 0.45, 4.55)
    """

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class LeastSquares:
    """Least squares fit of outcomes to a design matrix, with shared errors.

    Args:
        outcomes: (C,) outcomes of C observations.
        design: (C, P) design matrix for P parameters.
        cosines: (C, C) upper bounds on the correlations of the errors; None for independent errors.
    """

    outcomes: Float[np.ndarray, " c"]
    design: Float[np.ndarray, "c p"]
    cosines: Cosines = None

    @classmethod
    def on(
        cls, outcomes: Float[np.ndarray, " c"], *predictors: Float[np.ndarray, " c"], cosines: Cosines
    ) -> "LeastSquares":
        """Set up a fit on an intercept and predictors.

        Args:
            outcomes: (C,) outcomes.
            predictors: (C,) values of each predictor.
            cosines: (C, C) upper bounds on the correlations of the errors; None for independent errors.
        """
        return cls(outcomes, np.column_stack([np.ones(len(outcomes)), *predictors]), cosines)

    def interval(self, statistic: Float[np.ndarray, " c1"], combination: Sequence[float]) -> IntervalEstimate:
        """Estimate a linear combination of the fit's coefficients.

        Args:
            statistic: (C + 1,) the combination for all observations, then without each observation.
            combination: P weights of the coefficients.

        Raises:
            ValueError: The statistic of all observations is undefined.
        """
        variance, degrees = _jackknife_variance(statistic), residual_degrees(self.cosines, self.design)
        if self.cosines is not None:
            weights = np.array(combination, dtype=np.float64)
            shared, degrees = linear_variance(self.cosines, self.outcomes, self.design, weights)
            variance = max(variance, shared)
        return _estimate(statistic, variance, degrees)

    def correlation(self, statistic: Float[np.ndarray, " c1"]) -> IntervalEstimate | None:
        """Estimate a correlation of the outcome and a predictor, given the other predictors.

        The interval is symmetric in Fisher's z = artanh(r).

        Args:
            statistic: (C + 1,) the correlation for all observations, then without each observation.

        Returns:
            The estimate; None if the correlation of all observations is undefined.
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
        return IntervalEstimate(float(statistic[0]), low, high)


def interval(statistic: Float[np.ndarray, " c1"], degrees: float) -> IntervalEstimate:
    """Estimate a statistic from its values without each part of the data.

    Args:
        statistic: (C + 1,) the statistic for all data, then without each of C parts.
        degrees: Degrees of freedom; below 1 the interval is None.

    Raises:
        ValueError: The statistic of all data is undefined.
    """
    return _estimate(statistic, _jackknife_variance(statistic), degrees)


def _jackknife_variance(statistic: Float[np.ndarray, " c1"]) -> float:
    """Return the jackknife's variance of a statistic; NaN if it is undefined without one of the observations."""
    left_out = statistic[1:]
    return float((len(left_out) - 1) * np.mean(np.square(left_out - left_out.mean()))) if len(left_out) else math.nan


def _estimate(statistic: Float[np.ndarray, " c1"], variance: float, degrees: float) -> IntervalEstimate:
    """Return the estimate; it has no interval below one degree of freedom."""
    value = float(statistic[0])
    if not np.isfinite(value):
        raise ValueError("the statistic of all observations is undefined, so that it has no interval")
    # Tolerate rounding below one degree of freedom.
    if degrees < 1 - 1e-9 or not np.isfinite(variance):
        return IntervalEstimate(value, None, None)
    half = float(stdtrit(max(degrees, 1.0), (1 + CONFIDENCE) / 2) * math.sqrt(variance))
    return IntervalEstimate(value, value - half, value + half)


def mean(values: Float[np.ndarray, " c"], cosines: Cosines = None) -> IntervalEstimate:
    """Estimate the mean of at least one observation; for independent errors the interval is that of the t test.

    Args:
        values: (C,) observations.
        cosines: (C, C) upper bounds on the correlations of the errors; None for independent errors.
    """
    if len(values) < 2:
        return IntervalEstimate(float(values.mean()), None, None)
    left_out = np.append(values.mean(), (values.sum() - values) / (len(values) - 1))
    return LeastSquares(values, np.ones((len(values), 1)), cosines).interval(left_out, [1.0])


@dataclass(frozen=True)
class Moments:
    """Means and scatter of Q columns, for all C observations first, then without each observation.

    Leaving out observation i subtracts n / (n - 1) d_i d_i^T from the scatter, where d_i is its deviation from the mean
    of all n observations (Chan, Golub, LeVeque 1983, eq. 1.5b).

    Args:
        means: (C + 1, Q) means.
        scatter: (C + 1, Q, Q) sums of the centred products.
    """

    means: Float[np.ndarray, "c1 q"]
    scatter: Float[np.ndarray, "c1 q q"]

    @classmethod
    def of(cls, columns: Float[np.ndarray, "c q"]) -> "Moments":
        """Compute the moments of the columns (C, Q) of at least two observations."""
        n = len(columns)
        centre = columns.mean(0)
        deviations = columns - centre
        # Equal values differ from their mean by rounding only; do not count that as spread.
        deviations[:, np.abs(deviations).max(0) <= 1e-12 * np.abs(columns).max(0)] = 0
        scatter = deviations.T @ deviations
        without = scatter - n / (n - 1) * deviations[:, :, None] * deviations[:, None, :]
        # Nor is what rounding leaves of a column that is constant without one of the observations.
        diagonal = np.einsum("cii->ci", without)
        diagonal[diagonal < 1e-12 * np.diag(scatter)] = 0
        means = np.concatenate([centre[None], centre - deviations / (n - 1)])
        return cls(means, np.concatenate([scatter[None], without]))

    def pearson(self, first: int, second: int) -> Float[np.ndarray, " c1"]:
        """Compute Pearson's r of two columns, given by index, (C + 1,); NaN if one is constant."""
        product = self.scatter[:, first, first] * self.scatter[:, second, second]
        return np.clip(_divided(self.scatter[:, first, second], np.sqrt(product)), -1, 1)

    def partial(self, first: int, second: int, given: int) -> Float[np.ndarray, " c1"]:
        """Compute the partial correlation of two columns given a third: r of the residuals after regression on it.

        Args:
            first: Index of the first column.
            second: Index of the second column.
            given: Index of the third column.
        """
        ab, ag, bg = self.pearson(first, second), self.pearson(first, given), self.pearson(second, given)
        return np.clip(_divided(ab - ag * bg, np.sqrt(np.clip((1 - ag**2) * (1 - bg**2), 0, None))), -1, 1)

    def slopes(self, outcome: int, predictors: list[int]) -> Float[np.ndarray, "c1 p"]:
        """Fit a column by ordinary least squares with an intercept.

        Args:
            outcome: Index of the outcome's column.
            predictors: Indices of P columns.

        Returns:
            (C + 1, P) slopes; NaN if the predictors are collinear.
        """
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
