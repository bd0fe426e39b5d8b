"""Averages of the fp32 master weights over the training, sharded as the weights are: usual and power-function ones.

A power-function average at time T weights the network's weights at time t by p(t) = (gamma + 1) t^gamma /
T^(gamma + 1), for t in [0, T]; its relative length sigma_rel is the standard deviation of p divided by T, and times are
images seen. Combinations are computed from several of them (arXiv 2312.02696, sec. 3.1, 3.2, app. C).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import torch

from hpcddm.config.training import Training
from hpcddm.runs.weights_files import USUAL, power_average_name


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


def power_update_weight(gamma: float, images_seen: int, batch: int) -> float:
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


RAMP = 0.1
"""Largest half-life as a share of the images seen, so that the average forgets the initial weights."""


def update_weight(images_seen: int, training: Training) -> float:
    """Return the weight of the newest values in the average after a step: 1 - 0.5^(batch / half-life).

    The half-life in images is `ema_halflife_images`, limited to `RAMP` times the images seen. Source: training_loop.py
    of NVlabs/edm (arXiv 2206.00364), which uses 0.05 and excludes the images of the step.

    Args:
        images_seen: Number of images seen, including those of the step.
        training: Settings of the training.
    """
    halflife = min(training.ema_halflife_images, RAMP * images_seen)
    return 1 - 0.5 ** (training.batch / halflife)


def update_weights(training: Training) -> dict[str, Callable[[int], float]]:
    """Return for every average, by name, the weight of the newest values as a function of the images seen.

    The usual average is the first entry; power-function averages follow.
    """
    weights: dict[str, Callable[[int], float]] = {USUAL: partial(update_weight, training=training)}
    for sigma_rel in training.power_ema:
        gamma = exponent(sigma_rel)
        weights[power_average_name(sigma_rel)] = partial(power_update_weight, gamma, batch=training.batch)
    return weights


class Ema:
    """Exponential moving average of this rank's fp32 weights.

    Args:
        masters: This rank's shards, as from `fp32_master_weights.master_weights`; the average starts as a copy.

    Examples:
        >>> weights = [torch.zeros(2)]
        >>> average = Ema(weights)
        >>> weights[0] += 1.0
        >>> average.update(weights, weight=0.25)
        >>> average.shards[0].tolist()
        [0.25, 0.25]
    """

    def __init__(self, masters: list[torch.Tensor]) -> None:
        self.shards = [shard.detach().clone() for shard in masters]

    def update(self, masters: list[torch.Tensor], weight: float, applied: bool | torch.Tensor = True) -> None:
        """Move every value towards its master weight by the fraction `weight` of their difference.

        Args:
            masters: This rank's current shards, in the order and shapes of the constructor's.
            weight: Fraction in [0, 1].
            applied: False if the optimizer step was skipped; on a GPU a tensor (), so that the host does not wait for
                it.
        """
        if isinstance(applied, torch.Tensor):
            applied_weight = torch.where(applied, weight, 0.0)
            for shard, master in zip(self.shards, masters, strict=True):
                shard.lerp_(master.detach(), applied_weight)
        elif applied:
            torch._foreach_lerp_(self.shards, masters, weight)
