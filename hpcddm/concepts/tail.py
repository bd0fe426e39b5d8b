"""Long tail of concept frequencies: power law, inequality, head, middle and tail, and what experts share of them."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Integer, Num

from hpcddm.rundir import reading
from hpcddm.uncertainty.distributions import hurwitz_zeta

_LARGEST_EXPONENT = 30.0
_STEP = 1e-5
"""Step of the exponent by which the variance of log k is taken, as the derivative of its mean."""


@dataclass(frozen=True)
class PowerLaw:
    """Discrete power law p(k) ~ k^-exponent for counts from `minimum` on (Clauset et al., arXiv 0706.1062)."""

    exponent: float
    error: float
    """Standard error of the exponent (their equation 3.6)."""
    zipf: float
    """Exponent of count ~ rank^-zipf that goes with it: 1 / (exponent - 1); 1 is Zipf's law."""
    minimum: int
    concepts: int
    """Concepts with counts from the minimum on."""
    distance: float
    """Kolmogorov-Smirnov distance of counts and law, in [0, 1] (their equation 3.9): far from 0 it is no power law."""


@dataclass(frozen=True)
class LongTail:
    """Shape of the distribution of a vocabulary's counts."""

    concepts: int
    mentions: int
    """Sum of the counts."""
    least_head: float
    least_middle: float
    head: int
    """Concepts with counts from `least_head` on; then those from `least_middle` on, those above 0, and those at 0."""
    middle: int
    tail: int
    zero: int
    head_mentions: float | None
    """Share of the mentions that the head has; None where there are none, as for the Gini coefficient."""
    gini: float | None
    """Gini coefficient over all concepts, those at 0 too: 0 for equal counts, near 1 where one concept has all."""
    power_law: PowerLaw | None
    """None where no count is above the power law's minimum."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return asdict(self)


def long_tail(
    counts: Integer[np.ndarray, " c"], least_head: float = 100, least_middle: float = 20, minimum: int = 1
) -> LongTail:
    """Describe counts; more than 100 are many and fewer than 20 few by default, as in arXiv 1904.05160, section 4.

    Raises ValueError for a negative count, and where the head would begin below the middle, or the middle at 0.
    """
    if (counts < 0).any():
        raise ValueError("counts of concepts are 0 or more")
    if not 0 < least_middle <= least_head:
        raise ValueError(f"the middle begins above 0 and not above the head, not at {least_middle} and {least_head}")
    mentions = int(counts.sum())
    head = counts >= least_head
    return LongTail(
        concepts=len(counts),
        mentions=mentions,
        least_head=least_head,
        least_middle=least_middle,
        head=int(head.sum()),
        middle=int((counts >= least_middle).sum() - head.sum()),
        tail=int((counts < least_middle).sum() - (counts == 0).sum()),
        zero=int((counts == 0).sum()),
        head_mentions=float(counts[head].sum() / mentions) if mentions else None,
        gini=gini(counts) if mentions else None,
        power_law=power_law(counts, minimum),
    )


def gini(counts: Num[np.ndarray, " c"]) -> float:
    """Compute the Gini coefficient: sum_i (2 i - n - 1) x_i / (n sum_i x_i), x ascending, i from 1 (Dixon et al. 1987).

    Raises ValueError where all counts are 0.
    """
    if not counts.sum() > 0:
        raise ValueError("a Gini coefficient needs a count above 0")
    ascending, n = np.sort(counts).astype(np.float64), len(counts)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ascending / (n * ascending.sum()))


def power_law(counts: Integer[np.ndarray, " c"], minimum: int = 1) -> PowerLaw | None:
    """Fit the exponent by maximum likelihood to the counts from the minimum on; None where none is above it.

    The exponent at which the law expects the mean of log k that the counts have (arXiv 0706.1062, equation 3.4), by
    bisection; counts that are all the minimum have none. Raises ValueError for a minimum below 1.
    """
    if minimum < 1:
        raise ValueError(f"a power law begins at 1 or more, not {minimum}")
    kept = counts[counts >= minimum]
    if not len(kept) or kept.max() == minimum:
        return None
    mean_log = float(np.log(kept).mean())
    low, high = 1 + 1e-9, _LARGEST_EXPONENT
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        # The expected mean falls with the exponent.
        low, high = (middle, high) if _expected_log(middle, minimum) > mean_log else (low, middle)
    variance = (_expected_log(low - _STEP, minimum) - _expected_log(low + _STEP, minimum)) / (2 * _STEP)
    error = 1 / math.sqrt(len(kept) * variance)
    return PowerLaw(low, error, 1 / (low - 1), minimum, len(kept), _distance(kept, low, minimum))


def _expected_log(exponent: float, minimum: int) -> float:
    """Return the mean of log k under the law, -zeta' / zeta; a complex step takes the derivative to full precision."""
    zeta = hurwitz_zeta(exponent + 1e-30j, np.array([minimum]))[0]
    return float(-zeta.imag / 1e-30 / zeta.real)


def _distance(kept: Integer[np.ndarray, " c"], exponent: float, minimum: int) -> float:
    counts, numbers = np.unique(kept, return_counts=True)
    above = hurwitz_zeta(exponent, np.concatenate([[minimum], counts, counts + 1])).real
    below, up_to = np.split(1 - above[1:] / above[0], 2)
    observed = np.cumsum(numbers) / len(kept)
    # The law rises between two counts that occur, so that the greatest distance may be just below the second.
    return float(max(np.abs(observed - up_to).max(), np.abs(observed - numbers / len(kept) - below).max()))


def entropy_over_experts(counts: Integer[np.ndarray, "c k"]) -> Float[np.ndarray, " c"]:
    """Compute the entropy in bits of each concept's distribution over k experts: 0 in one, log2 k evenly in all.

    NaN for a concept without samples (Shannon 1948).
    """
    totals = counts.sum(1, keepdims=True)
    shares = np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    logs = np.log2(shares, out=np.zeros(counts.shape), where=shares > 0)
    return 0.0 - (shares * logs).sum(1)


@dataclass(frozen=True)
class Misalignment:
    """Samples whose caption and image have concepts, and none in common (misalignment degree of arXiv 2404.04125)."""

    # The file has the shares, too.
    __pydantic_config__: ClassVar = reading.OPEN

    disjoint: int
    with_any: int
    """Samples with a concept in caption or image."""
    samples: int

    def __post_init__(self) -> None:
        if not 0 <= self.disjoint <= self.with_any <= self.samples:
            raise ValueError(f"{self.disjoint} disjoint of {self.with_any} with concepts of {self.samples} samples")

    @property
    def of_all(self) -> float | None:
        """Share of all samples; None where there are none."""
        return self.disjoint / self.samples if self.samples else None

    @property
    def of_any(self) -> float | None:
        """Share of the samples with a concept in caption or image; None where there are none.

        The released script divides by the greater of the numbers with a concept in captions and in images, which is at
        most this one; to compare, give that as `with_any`.
        """
        return self.disjoint / self.with_any if self.with_any else None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Misalignment":
        """Read what `as_json` made."""
        return cls(**{field.name: content[field.name] for field in fields(cls)})

    def as_json(self) -> dict[str, Any]:
        """Return counts and shares as JSON holds them."""
        return {**asdict(self), "of_all": self.of_all, "of_any": self.of_any}
