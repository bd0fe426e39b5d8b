"""Least squares of observations whose errors are correlated, with given bounds on the correlations."""

import numpy as np
from jaxtyping import Float

Cosines = Float[np.ndarray, "c c"] | None
"""Upper bounds on the correlations of the errors of any two observations; None for independent errors."""


def effective_number(cosines: Cosines, observations: int) -> float:
    """Return the number of independent observations with an equally precise mean: n^2 / sum of the cosines.

    This is n divided by the design effect of correlated units (Kish 1965, sec. 5.4).

    Args:
        cosines: (n, n) upper bounds on the correlations of the errors; None for independent errors.
        observations: Number of observations n.

    Examples:
        >>> effective_number(np.array([[1.0, 1.0], [1.0, 1.0]]), 2)  # two copies of one observation
        1.0
    """
    return float(observations if cosines is None else observations**2 / cosines.sum())


def linear_variance(
    cosines: Float[np.ndarray, "c c"],
    outcomes: Float[np.ndarray, " c"],
    design: Float[np.ndarray, "c p"],
    combination: Float[np.ndarray, " p"],
) -> tuple[float, float]:
    """Estimate the variance of a linear combination of least-squares coefficients under correlated errors.

    With the residual maker Q of the design, the cosines R and the statistic's weights a of the outcomes, the variance
    is RSS a'Ra / tr(QR), with tr(QR)^2 / tr(QRQR) degrees of freedom (Satterthwaite 1946).

    Args:
        cosines: (C, C) correlations of the errors.
        outcomes: (C,) outcomes.
        design: (C, P) design matrix.
        combination: (P,) weights of the coefficients.

    Returns:
        Variance and degrees of freedom; infinity and 0 if the observations carry the same information.
    """
    weights, residual_maker = _residual_maker(design)
    remaining = residual_maker @ cosines
    trace = float(np.trace(remaining))
    if trace < 1e-9 * len(outcomes):
        return float("inf"), 0.0
    residuals = residual_maker @ outcomes
    outcome_weights = combination @ weights
    return float(residuals @ residuals * (outcome_weights @ cosines @ outcome_weights) / trace), _degrees(remaining)


def residual_degrees(cosines: Cosines, design: Float[np.ndarray, "c p"]) -> float:
    """Return the degrees of freedom of the residuals; for independent errors observations minus parameters.

    Args:
        cosines: (C, C) correlations of the errors; None for independent errors.
        design: (C, P) design matrix.
    """
    return float(len(design) - design.shape[1]) if cosines is None else _degrees(_residual_maker(design)[1] @ cosines)


def _residual_maker(design: Float[np.ndarray, "c p"]) -> tuple[Float[np.ndarray, "p c"], Float[np.ndarray, "c c"]]:
    weights = np.linalg.pinv(design)
    return weights, np.eye(len(design)) - design @ weights


def _degrees(remaining: Float[np.ndarray, "c c"]) -> float:
    squares = float((remaining * remaining.T).sum())
    return float(np.trace(remaining)) ** 2 / squares if squares > 1e-18 else 0.0
