"""Power-function averages of weights, and others made of them afterwards (arXiv 2312.02696, sec. 3.1, 3.2, app. C).

An average at time T weighs the weights of time t by p(t) = (gamma + 1) t^gamma / T^(gamma + 1), t in [0, T]. Its
length is said by sigma_rel, the standard deviation of p over T. Times are images seen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np


@dataclass(frozen=True)
class Profile:
    """Weights over time of one average: its exponent gamma, and the images at which it was kept."""

    gamma: float
    images: int


def exponent(sigma_rel: float) -> float:
    """Return gamma of a relative length in (0, 0.288).

    sigma_rel^2 = (gamma + 1) / ((gamma + 2)^2 (gamma + 3)), a cubic equation in gamma; its largest root counts.
    """
    inverse = sigma_rel**-2
    return float(np.roots([1, 7, 16 - inverse, 12 - inverse]).real.max())


def update_weight(gamma: float, images_seen: int, batch: int) -> float:
    """Return the weight of the newest values after a step: 1 - (1 - batch / images_seen)^(gamma + 1), eq. 2."""
    return 1 - (1 - batch / images_seen) ** (gamma + 1)


def coefficients(kept: Sequence[Profile], wanted: Profile) -> list[float]:
    """Return the factors, of sum 1, by which averages that were kept add up to the one that is nearest to `wanted`.

    They minimise the integral over time of the squared difference of the profiles (app. C). That their sum is 1, which
    is nearly so for many averages, is asked for here: of a few, weights would else come out too large or too small.
    """
    count, scale = len(kept), wanted.images
    system, aims = np.zeros((count + 1, count + 1)), np.ones(count + 1)
    system[:count, :count] = [[scale * _product(first, second) for second in kept] for first in kept]
    system[count, :count] = system[:count, count] = 1
    aims[:count] = [scale * _product(profile, wanted) for profile in kept]
    factors: list[float] = np.linalg.lstsq(system, aims, rcond=None)[0][:count].tolist()
    return factors


def distance(kept: Sequence[Profile], factors: Sequence[float], wanted: Profile) -> float:
    """Return how far a sum of profiles is from `wanted`, as a share of its norm (L2 over time)."""
    pairs = product(zip(kept, factors, strict=True), repeat=2)
    square = sum(own * other * _product(first, second) for (first, own), (second, other) in pairs)
    mixed = sum(factor * _product(profile, wanted) for profile, factor in zip(kept, factors, strict=True))
    return math.sqrt(max(square - 2 * mixed + _product(wanted, wanted), 0.0) / _product(wanted, wanted))


def _product(first: Profile, second: Profile) -> float:
    """Return the integral of the product of two profiles.

    Of gammas a and b, at images A <= B: (a + 1) (b + 1) / (a + b + 1) (A / B)^b / B.
    """
    early, late = sorted((first, second), key=lambda profile: profile.images)
    factor = (early.gamma + 1) * (late.gamma + 1) / (early.gamma + late.gamma + 1)
    return factor * (early.images / late.images) ** late.gamma / late.images
