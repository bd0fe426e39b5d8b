import numpy as np
import pytest
from scipy import stats

from hpcddm.evaluation.statistics.jackknife import LeastSquares, Moments, mean

COLUMNS = np.random.default_rng(0).standard_normal((12, 3)) @ np.array([[1, 0.5, 0.2], [0, 1, 0.7], [0, 0, 1.0]]) + 100


def left_out(statistic, columns):
    return np.array([statistic(columns), *(statistic(np.delete(columns, one, 0)) for one in range(len(columns)))])


def test_moments_are_those_of_the_observations_that_are_left():
    moments = Moments.of(COLUMNS)
    np.testing.assert_allclose(moments.means, left_out(lambda columns: columns.mean(0), COLUMNS), rtol=1e-12)
    expected = left_out(lambda columns: np.cov(columns.T) * (len(columns) - 1), COLUMNS)
    np.testing.assert_allclose(moments.scatter, expected, rtol=1e-9)


def test_slopes_are_those_of_numpy():
    def fit(columns):
        design = np.column_stack([np.ones(len(columns)), columns[:, [1, 2]]])
        return np.linalg.lstsq(design, columns[:, 0], rcond=None)[0][1:]

    moments = Moments.of(COLUMNS)
    np.testing.assert_allclose(moments.slopes(0, [1, 2]), left_out(fit, COLUMNS), rtol=1e-8)
    assert moments.slopes(0, [1])[0] == pytest.approx(np.polyfit(COLUMNS[:, 1], COLUMNS[:, 0], 1)[0])


def test_correlations_are_those_of_numpy():
    expected = left_out(lambda columns: np.corrcoef(columns.T)[0, 2], COLUMNS)
    np.testing.assert_allclose(Moments.of(COLUMNS).pearson(0, 2), expected, rtol=1e-9)


def test_constant_and_collinear_columns_have_no_slope():
    x = np.random.default_rng(0).standard_normal(9)
    constant, twice = np.full(9, np.log10(7)), 2 * x + 5
    moments = Moments.of(np.stack([x, constant, twice], axis=1))
    assert np.isnan(moments.pearson(0, 1)).all()
    assert np.isnan(moments.slopes(0, [1])).all()
    assert np.isnan(moments.slopes(1, [0, 2])).all()
    np.testing.assert_allclose(moments.slopes(2, [0]), 2)


def test_interval_of_a_mean_is_that_of_the_t_test():
    values = np.array([1.0, 4.0, 2.0, 7.0, 3.0])
    estimate = mean(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_there_is_no_interval_where_leaving_out_one_leaves_nothing():
    assert mean(np.array([3.0])).low is None
    x, y = np.array([1.0, 1, 1, 2]), np.array([1.0, 2, 3, 4])
    estimate = LeastSquares.on(y, x, cosines=None).correlation(Moments.of(np.stack([x, y], axis=1)).pearson(0, 1))
    assert estimate.value > 0.7 and estimate.low is estimate.high is None
    with pytest.raises(ValueError, match="undefined"):
        LeastSquares.on(np.ones(2), np.ones(2), cosines=None).interval(np.array([np.nan, 1.0, 1.0]), [0, 1])
