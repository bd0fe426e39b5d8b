"""How well a score tells members from others: the area under the ROC curve, and members found at few false alarms.

Intervals of 95 % are in closed form: DeLong's for the area (Biometrics 44, 837, 1988), Clopper and Pearson's for the
share of members. Both take images for independent, and the second takes the threshold for known.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

FALSE_ALARMS = 0.01
Z = 1.96
"""Standard deviations of a normal distribution that hold 95 % of it."""
Scores = Float[np.ndarray, " n"]
"""One score per image; members are said to have the larger ones."""


@dataclass(frozen=True)
class Estimate:
    """A share with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def area(members: Scores, others: Scores) -> Estimate:
    """Return the probability that a member has a larger score than another image; ties count one half."""
    every = stats.rankdata(np.concatenate([members, others]))
    # Ranks among all less ranks among one's own count the images of the other side that are smaller.
    beaten = (every[: len(members)] - stats.rankdata(members)) / len(others)
    beating = 1 - (every[len(members) :] - stats.rankdata(others)) / len(members)
    value = float(beaten.mean())
    if min(len(members), len(others)) < 2:
        return Estimate(value, 0.0, 1.0)
    half = Z * float(beaten.var(ddof=1) / len(members) + beating.var(ddof=1) / len(others)) ** 0.5
    return Estimate(value, max(0.0, value - half), min(1.0, value + half))


def found(members: Scores, others: Scores, false_alarms: float = FALSE_ALARMS) -> Estimate:
    """Return the share of members above the lowest threshold that at most this share of the others exceeds."""
    # The tolerance keeps 0.01 * 300 at 3, whatever binary fractions make of it.
    allowed = int(false_alarms * len(others) + 1e-9)
    above = int((members > np.sort(others)[::-1][allowed]).sum())
    low, high = stats.binomtest(above, len(members)).proportion_ci(method="exact")
    return Estimate(above / len(members), float(low), float(high))
