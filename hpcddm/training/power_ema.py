"""Power-function averages of weights, and combinations computed from them (arXiv 2312.02696, sec. 3.1, 3.2, app. C).

An average at time T weights the network's weights at time t by p(t) = (gamma + 1) t^gamma / T^(gamma + 1), for t in
[0, T]. Its relative length sigma_rel is the standard deviation of p divided by T. Times are images seen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np


@dataclass(frozen=True)
class Profile:
    """Profile over time of one average: its exponent gamma and the images seen when it was stored."""

    gamma: float
    images: int


def exponent(sigma_rel: float) -> float:
    """Return the exponent gamma of a relative length.

    It is the largest root of the cubic equation sigma_rel^2 = (gamma + 1) / ((gamma + 2)^2 (gamma + 3)).

    Args:
        sigma_rel: Relative length in (0, 0.288).

    Examples:
        >>> round(exponent(0.05), 2), round(exponent(0.1), 2)
        (16.97, 6.94)
    """
    inverse = sigma_rel**-2
    return float(np.roots([1, 7, 16 - inverse, 12 - inverse]).real.max())


def update_weight(gamma: float, images_seen: int, batch: int) -> float:
    """Return the weight of the newest values after a step: 1 - (1 - batch / images_seen)^(gamma + 1) (eq. 2).

    Args:
        gamma: Exponent of the average.
        images_seen: Number of images seen, including those of the step.
        batch: Number of images in the step.
    """
    return 1 - (1 - batch / images_seen) ** (gamma + 1)


def coefficients(profiles: Sequence[Profile], target: Profile) -> list[float]:
    """Return the factors of the stored averages whose weighted sum approximates the target best.

    The factors sum to 1 and minimise the integral over time of the squared difference of the profiles (app. C). The sum
    is nearly 1 anyway with many averages; with few, the constraint prevents weights that are too large or too small.

    Args:
        profiles: Profiles of the stored averages.
        target: Profile to approximate.
    """
    count, scale = len(profiles), target.images
    system, aims = np.zeros((count + 1, count + 1)), np.ones(count + 1)
    system[:count, :count] = [[scale * _product(first, second) for second in profiles] for first in profiles]
    system[count, :count] = system[:count, count] = 1
    aims[:count] = [scale * _product(profile, target) for profile in profiles]
    factors: list[float] = np.linalg.lstsq(system, aims, rcond=None)[0][:count].tolist()
    return factors


def distance(profiles: Sequence[Profile], factors: Sequence[float], target: Profile) -> float:
    """Return the distance between a weighted sum of profiles and the target, as a share of the target's L2 norm.

    Args:
        profiles: Profiles of the stored averages.
        factors: One factor per profile.
        target: Profile to approximate.
    """
    pairs = product(zip(profiles, factors, strict=True), repeat=2)
    square = sum(own * other * _product(first, second) for (first, own), (second, other) in pairs)
    mixed = sum(factor * _product(profile, target) for profile, factor in zip(profiles, factors, strict=True))
    return math.sqrt(max(square - 2 * mixed + _product(target, target), 0.0) / _product(target, target))


def _product(first: Profile, second: Profile) -> float:
    """Return the integral of the product of two profiles.

    For exponents a and b at images A <= B it is (a + 1) (b + 1) / (a + b + 1) (A / B)^b / B.
    """
    early, late = sorted((first, second), key=lambda profile: profile.images)
    factor = (early.gamma + 1) * (late.gamma + 1) / (early.gamma + late.gamma + 1)
    return factor * (early.images / late.images) ** late.gamma / late.images
