"""Least squares of observations whose errors correlate, at most as given cosines do."""

import numpy as np
from jaxtyping import Float

Cosines = Float[np.ndarray, "c c"] | None
"""Correlations of the errors of every two observations at most; None where they have nothing in common."""


def effective_number(cosines: Cosines, observations: int) -> float:
    """Return how many independent observations have a mean as certain as that of these: n^2 / sum of the cosines.

    It is n over the design effect of correlated units (Kish 1965, sec. 5.4).
    """
    return float(observations if cosines is None else observations**2 / cosines.sum())


def linear_variance(
    cosines: Float[np.ndarray, "c c"],
    outcomes: Float[np.ndarray, " c"],
    design: Float[np.ndarray, "c p"],
    combination: Float[np.ndarray, " p"],
) -> tuple[float, float]:
    """Estimate the variance of a combination of coefficients of least squares whose errors correlate as the cosines.

    With Q the residual maker of the design, R the cosines and a the statistic's weights of the outcomes, it is
    RSS a'Ra / tr(QR), which has tr(QR)^2 / tr(QRQR) degrees of freedom (Satterthwaite 1946). Returns both; infinity
    and 0 where the observations say the same.
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
    """Return the degrees of freedom of such a fit's residuals: observations less parameters where nothing is shared."""
    return float(len(design) - design.shape[1]) if cosines is None else _degrees(_residual_maker(design)[1] @ cosines)


def _residual_maker(design: Float[np.ndarray, "c p"]) -> tuple[Float[np.ndarray, "p c"], Float[np.ndarray, "c c"]]:
    weights = np.linalg.pinv(design)
    return weights, np.eye(len(design)) - design @ weights


def _degrees(remaining: Float[np.ndarray, "c c"]) -> float:
    squares = float((remaining * remaining.T).sum())
    return float(np.trace(remaining)) ** 2 / squares if squares > 1e-18 else 0.0
