"""Least squares and their uncertainty, against those of statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm

from hpcddm.evaluation.statistics.jackknife import LeastSquares, Moments
from hpcddm.evaluation.statistics.shared_errors import linear_variance

OBSERVATIONS = 40
RANDOM = np.random.default_rng(0)
PREDICTORS = RANDOM.standard_normal((OBSERVATIONS, 2)) @ np.array([[1, 0.8], [0, 0.6]])
OUTCOMES = PREDICTORS @ [0.5, -0.2] + RANDOM.standard_normal(OBSERVATIONS)
DESIGN = sm.add_constant(PREDICTORS)


def fitted():
    return sm.OLS(OUTCOMES, DESIGN).fit()


def test_a_partial_correlation_is_that_of_the_t_value():
    t, degrees = fitted().tvalues[1], fitted().df_resid
    partial = Moments.of(np.column_stack([OUTCOMES, PREDICTORS])).partial(0, 1, given=2)[0]
    assert partial == pytest.approx(t / np.sqrt(t**2 + degrees), rel=1e-12)


def test_the_variance_without_shared_errors_is_that_of_ordinary_least_squares():
    combination = np.array([1.0, 0.3, -2.0])
    variance, degrees = linear_variance(np.eye(OBSERVATIONS), OUTCOMES, DESIGN, combination)
    assert variance == pytest.approx(combination @ fitted().cov_params() @ combination, rel=1e-12)
    assert degrees == pytest.approx(fitted().df_resid, rel=1e-12)


def test_the_variance_with_shared_errors_is_the_sandwich_of_their_covariance():
    """Of pairs that share all errors: that of clusters, but for the estimate of the errors' size."""
    pairs = np.kron(np.eye(OBSERVATIONS // 2), np.ones((2, 2)))
    weights, residuals = np.linalg.pinv(DESIGN), fitted().resid
    maker = np.eye(OBSERVATIONS) - DESIGN @ weights
    sandwich = weights @ pairs @ weights.T * (residuals @ residuals) / np.trace(maker @ pairs)
    for column in range(3):
        variance, _ = linear_variance(pairs, OUTCOMES, DESIGN, np.eye(3)[column])
        assert variance == pytest.approx(sandwich[column, column], rel=1e-10)


def test_the_jackknife_is_near_the_variance_that_heteroscedastic_errors_have():
    """It is that of MacKinnon and White (1985), HC3, up to 1 / n: half an interval is their standard error times t."""
    fit = LeastSquares.on(OUTCOMES, *PREDICTORS.T, cosines=None)
    slopes = Moments.of(np.column_stack([OUTCOMES, PREDICTORS])).slopes(0, [1, 2])
    estimate = fit.interval(slopes[:, 0], [0, 1, 0])
    expected = sm.OLS(OUTCOMES, DESIGN).fit(cov_type="HC3", use_t=True).conf_int()[1]
    assert (estimate.low, estimate.high) == pytest.approx(tuple(expected), abs=0.02)
