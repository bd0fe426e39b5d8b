"""Every conversion between epsilon, x0, v and velocities, as pure functions.

At a level of noise x = alpha x0 + sigma eps, and every quantity that a network may predict is a linear form
p = cx x0 + ce eps. Of x and p either determines x0 and eps unless alpha ce - sigma cx = 0.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

FLOOR = 1e-6
"""Smallest alpha and sigma that a conversion divides by: all conversions are finite at t = 0 and t = 1."""


Factor = Float[Tensor, " #n"]
"""One number per sample, or one for all of them."""
Images = Float[Tensor, "n c h w"]


class Level(NamedTuple):
    """alpha and sigma at some times and their derivatives by time."""

    alpha: Factor
    sigma: Factor
    d_alpha: Factor
    d_sigma: Factor


FORMS: dict[str, Callable[[Level], tuple[Tensor, Tensor]]] = {
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


def floored(level: Level, floor: float = FLOOR) -> Level:
    """Return the level with alpha and sigma no smaller than `floor`."""
    return level._replace(alpha=level.alpha.clamp(min=floor), sigma=level.sigma.clamp(min=floor))


def predict(prediction_type: str, level: Level, x0: Images, noise: Images) -> Images:
    """Compute cx x0 + ce eps, the target of a prediction."""
    cx, ce = FORMS[prediction_type](level)
    return scale_per_sample(cx, x0) + scale_per_sample(ce, noise)


def convert(source: str, target: str, level: Level, x: Images, prediction: Images) -> Images:
    """Compute the target quantity at a state x of this level, from a prediction of the source quantity.

    With D(c) = alpha ce - sigma cx: q = ((cx' ce - ce' cx) x + D(c') p) / D(c), the solution of
    x = alpha x0 + sigma eps and p = cx x0 + ce eps put into q = cx' x0 + ce' eps; `floored` makes it finite everywhere.
    """
    (cx, ce), (target_cx, target_ce) = FORMS[source](level), FORMS[target](level)
    from_prediction = determinant(target, level) / determinant(source, level)
    from_state = (target_cx * ce - target_ce * cx) / determinant(source, level)
    return scale_per_sample(from_prediction, prediction) + scale_per_sample(from_state, x)


def determinant(prediction_type: str, level: Level) -> Factor:
    """Compute alpha ce - sigma cx.

    At a given x the errors of two quantities are in the ratio of their determinants.
    """
    cx, ce = FORMS[prediction_type](level)
    return level.alpha * ce - level.sigma * cx


def scale_per_sample(factor: Factor, images: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
    """Multiply images by one factor each, in the images' dtype."""
    return factor.to(images.dtype).view(-1, *[1] * (images.ndim - 1)) * images
