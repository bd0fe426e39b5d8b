"""Probabilities of Student's t and of F, by the incomplete beta function, and the zeta function of power laws."""

import math
from functools import cache

import numpy as np
from jaxtyping import Complex, Integer

_LEAST = 1e-300
_PRECISION = 1e-16
_DIRECT_TERMS = 20
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)
"""Bernoulli numbers B_2 to B_12."""


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), in [0, 1].

    Continued fraction of DLMF 8.17.22, evaluated by the algorithm of Lentz (1976); where it converges slowly, I_x(a, b)
    = 1 - I_(1-x)(b, a) (DLMF 8.17.4). Raises ValueError outside of a, b > 0 and 0 <= x <= 1.
    """
    if not (a > 0 and b > 0 and 0 <= x <= 1):
        raise ValueError(f"I_x(a, b) needs a, b > 0 and 0 <= x <= 1, not a = {a}, b = {b}, x = {x}")
    if x in (0.0, 1.0):
        return float(x)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a / _continued_fraction(a, b, x)


def _continued_fraction(a: float, b: float, x: float) -> float:
    fraction = numerators = 1.0
    denominators = 0.0
    for step in range(1, 10_000):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominators = 1 / _not_zero(1 + term * denominators)
        numerators = _not_zero(1 + term / numerators)
        fraction *= numerators * denominators
        if abs(numerators * denominators - 1) < _PRECISION:
            break
    return fraction


def _not_zero(value: float) -> float:
    return value if abs(value) > _LEAST else _LEAST


def t_p_value(t: float, degrees: float) -> float:
    """Return the two-sided p-value of Student's t: I_x(degrees / 2, 1 / 2), x = degrees / (degrees + t^2)."""
    return 0.0 if math.isinf(t) else incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def f_p_value(f: float, numerator: float, denominator: float) -> float:
    """Return the p-value of an F statistic with so many degrees of freedom: the probability of a greater one."""
    if math.isinf(f):
        return 0.0
    return incomplete_beta(denominator / 2, numerator / 2, denominator / (denominator + numerator * f))


@cache
def t_quantile(confidence: float, degrees: float) -> float:
    """Return the t that has a two-sided p-value of 1 - confidence, by bisection: 2.776 for 0.95 and 4 degrees."""
    low, high = 0.0, 1.0
    while t_p_value(high, degrees) > 1 - confidence:
        high *= 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if t_p_value(middle, degrees) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def correlation_p_value(r: float, points: int) -> float:
    """Return the two-sided p-value of a Pearson r of so many points, at least 3, by t with points - 2 degrees."""
    if abs(r) >= 1:
        return 0.0
    return t_p_value(r * math.sqrt((points - 2) / (1 - r * r)), points - 2)


def hurwitz_zeta(exponent: complex, first: Integer[np.ndarray, " m"]) -> Complex[np.ndarray, " m"]:
    """Return the sum of k^-exponent over k from each first, at least 1, for an exponent with a real part above 1.

    Euler and Maclaurin's formula after twenty terms (DLMF 25.11.28 has the remainder).
    """
    s, start = complex(exponent), first.astype(np.float64)
    direct = (start[:, None] + np.arange(_DIRECT_TERMS)) ** -s
    rest = start + _DIRECT_TERMS
    total = direct.sum(1) + rest ** (1 - s) / (s - 1) + rest**-s / 2
    factor = s * rest ** (-s - 1) / 2
    for order, bernoulli in enumerate(_BERNOULLI, start=1):
        total += bernoulli * factor
        factor = factor * (s + 2 * order - 1) * (s + 2 * order) / ((2 * order + 1) * (2 * order + 2)) / rest**2
    return total
