"""Conversions between epsilon, x0, v and velocities, as pure functions.

At a noise level x = alpha x0 + sigma eps, and every quantity that a network may predict is a linear form
p = cx x0 + ce eps. Together x and p determine x0 and eps unless alpha ce - sigma cx = 0.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

MIN_COEFFICIENT = 1e-6
"""Smallest alpha and sigma in a denominator, so that all conversions are finite at t = 0 and t = 1."""


Factor = Float[Tensor, " #n"]
"""One number per sample, or one for all samples."""
Images = Float[Tensor, "n c h w"]


class Level(NamedTuple):
    """Values of alpha and sigma at some times, and their time derivatives."""

    alpha: Factor
    sigma: Factor
    d_alpha: Factor
    d_sigma: Factor


LINEAR_FORMS: dict[str, Callable[[Level], tuple[Tensor, Tensor]]] = {
    "epsilon": lambda level: (torch.zeros_like(level.alpha), torch.ones_like(level.alpha)),
    "x0": lambda level: (torch.ones_like(level.alpha), torch.zeros_like(level.alpha)),
    # arXiv 2202.00512, sec. 4.
    "v": lambda level: (-level.sigma, level.alpha),
    # dx_t/dt on the linear path, on any path of x.
    "velocity": lambda level: (-torch.ones_like(level.alpha), torch.ones_like(level.alpha)),
    # dx_t/dt on the path of x (arXiv 2210.02747, sec. 4).
    "path_velocity": lambda level: (level.d_alpha, level.d_sigma),
}
"""Quantities that a network may predict: functions of the level to (cx, ce), each (N,)."""


def clamp_level(level: Level, floor: float = MIN_COEFFICIENT) -> Level:
    """Return the level with alpha and sigma raised to at least `floor`."""
    return level._replace(alpha=level.alpha.clamp(min=floor), sigma=level.sigma.clamp(min=floor))


def predict(prediction_type: str, level: Level, x0: Images, noise: Images) -> Images:
    """Compute the target cx x0 + ce eps of a prediction.

    Args:
        prediction_type: Key of `LINEAR_FORMS`.
        level: Noise level of each image.
        x0: (N, C, H, W) clean images.
        noise: (N, C, H, W) noise eps.
    """
    cx, ce = LINEAR_FORMS[prediction_type](level)
    return scale_per_sample(cx, x0) + scale_per_sample(ce, noise)


def convert(source: str, target: str, level: Level, x: Images, prediction: Images) -> Images:
    """Convert a prediction of the quantity `source` to the quantity `target` at the same state and level.

    With D(c) = alpha ce - sigma cx the result is q = ((cx' ce - ce' cx) x + D(c') p) / D(c). To derive it, solve
    x = alpha x0 + sigma eps and p = cx x0 + ce eps for x0 and eps and insert them into q = cx' x0 + ce' eps. Apply
    `clamp_level` to the level first to keep the result finite.

    Args:
        source: Key of `LINEAR_FORMS`: the quantity that the network predicts.
        target: Key of `LINEAR_FORMS`: the quantity to compute.
        level: Noise level of each state.
        x: (N, C, H, W) states.
        prediction: (N, C, H, W) predictions at the states.

    Returns:
        (N, C, H, W) values of the target quantity.

    Examples:
        >>> from torch import full, tensor
        >>> level = Level(tensor([0.6]), tensor([0.8]), tensor([-1.0]), tensor([1.0]))
        >>> x0, noise = full((1, 1, 1, 1), 2.0), full((1, 1, 1, 1), 1.0)
        >>> x = 0.6 * x0 + 0.8 * noise
        >>> round(convert("epsilon", "x0", level, x, noise).item(), 4)
        2.0
        >>> round(convert("x0", "velocity", level, x, x0).item(), 4)  # eps - x0
        -1.0
    """
    (cx, ce), (target_cx, target_ce) = LINEAR_FORMS[source](level), LINEAR_FORMS[target](level)
    from_prediction = determinant(target, level) / determinant(source, level)
    from_state = (target_cx * ce - target_ce * cx) / determinant(source, level)
    return scale_per_sample(from_prediction, prediction) + scale_per_sample(from_state, x)


def determinant(prediction_type: str, level: Level) -> Factor:
    """Compute alpha ce - sigma cx of a quantity.

    At a given state the errors of two quantities are proportional to their determinants.
    """
    cx, ce = LINEAR_FORMS[prediction_type](level)
    return level.alpha * ce - level.sigma * cx


def scale_per_sample(factor: Factor, images: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
    """Multiply each image by its factor, in the dtype of the images.

    Args:
        factor: (N,) or (1,) factors.
        images: (N, ...) images.
    """
    return factor.to(images.dtype).view(-1, *[1] * (images.ndim - 1)) * images
