import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddm.uncertainty.distributions import (
    correlation_p_value,
    f_p_value,
    hurwitz_zeta,
    incomplete_beta,
    t_p_value,
    t_quantile,
)

SHAPES = st.floats(0.5, 200)


@given(SHAPES, SHAPES, st.floats(0, 1))
def test_incomplete_beta_is_that_of_mpmath(a, b, x):
    expected = float(mpmath.betainc(a, b, 0, x, regularized=True))
    assert incomplete_beta(a, b, x) == pytest.approx(expected, rel=1e-11, abs=1e-14)


@pytest.mark.parametrize("a, b, x", [(0, 1, 0.5), (1, 0, 0.5), (1, 1, -0.1), (1, 1, 1.1), (1, 1, math.nan)])
def test_outside_of_its_domain_it_is_refused(a, b, x):
    with pytest.raises(ValueError, match=r"needs a, b > 0 and 0 <= x <= 1"):
        incomplete_beta(a, b, x)


def test_p_values_and_quantiles_are_those_of_scipy():
    """Made by scipy 1.17.1: stats.t.sf(2.5, 8) * 2, stats.f.sf(3.3, 2, 17), stats.t.ppf(0.975, 4)."""
    assert t_p_value(2.5, 8) == pytest.approx(0.03694203771362412, rel=1e-12)
    assert f_p_value(3.3, 2, 17) == pytest.approx(0.06152672610283085, rel=1e-12)
    assert t_quantile(0.95, 4) == pytest.approx(2.7764451051977934, rel=1e-11)


@given(st.floats(-50, 50), st.integers(1, 3000))
def test_f_of_one_and_n_degrees_is_t_squared(t, degrees):
    assert f_p_value(t * t, 1, degrees) == pytest.approx(t_p_value(t, degrees), rel=1e-9)


@settings(max_examples=25)
@given(st.floats(0.5, 0.999), st.integers(1, 3000))
def test_the_quantile_inverts_the_p_value(confidence, degrees):
    assert t_p_value(t_quantile(confidence, degrees), degrees) == pytest.approx(1 - confidence, rel=1e-8)


def test_limits():
    assert t_p_value(0.0, 5) == 1
    assert t_p_value(math.inf, 5) == f_p_value(math.inf, 1, 5) == 0
    assert correlation_p_value(1.0, 5) == correlation_p_value(-1.0, 5) == 0
    assert np.isclose(t_quantile(0.95, 10**6), 1.959966, atol=1e-6)


@given(st.floats(1.01, 12), st.integers(1, 300))
def test_the_zeta_function_is_that_of_mpmath(exponent, first):
    expected = float(mpmath.zeta(exponent, first))
    assert hurwitz_zeta(exponent, np.array([first]))[0].real == pytest.approx(expected, rel=1e-10)
