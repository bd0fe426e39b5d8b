"""Intervals of metrics and of their differences between arms, by the delete-a-tenth jackknife.

A value's interval comes from its values without each tenth of the images, left out from samples and real images alike.
Arms are compared in pairs: they have the same conditions in the same order, and the same real images, so that what
these contribute to the errors cancels. Nothing is drawn again with replacement: distances see duplicates as closer.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.tenth_rows import TENTHS
from hpcddm.evaluation.statistics import jackknife
from hpcddm.evaluation.statistics.jackknife import IntervalEstimate


@dataclass(frozen=True)
class Difference(IntervalEstimate):
    """A metric's difference between two arms, the first minus the second, and the one of their distances from 1."""

    from_one: IntervalEstimate


def interval(value: float, left_out: np.ndarray) -> IntervalEstimate:
    """Estimate a metric's 95 % interval.

    Args:
        value: Value of all images.
        left_out: (10,) values without each tenth; the interval is None if one is undefined.
    """
    return jackknife.interval(np.append(value, left_out), TENTHS - 1)


def difference(a: float, a_left_out: np.ndarray, b: float, b_left_out: np.ndarray) -> Difference:
    """Estimate the difference a - b of a metric between two arms with the same conditions and real images.

    Args:
        a: Value of the first arm.
        a_left_out: (10,) its values without each tenth.
        b: Value of the second arm.
        b_left_out: (10,) its values without each tenth.
    """
    plain = interval(a - b, a_left_out - b_left_out)
    from_one = interval(abs(a - 1) - abs(b - 1), np.abs(a_left_out - 1) - np.abs(b_left_out - 1))
    return Difference(plain.value, plain.low, plain.high, from_one)


def verdict(metric: Metric, difference: Difference) -> Literal["better", "worse", "cannot tell"]:
    """Say whether the first arm is better, by the whole interval of the difference.

    Args:
        metric: Metric whose values were compared.
        difference: Its difference between the arms.
    """
    compared = difference.from_one if metric.better is Better.NEAR_ONE else difference
    if compared.low is None or compared.high is None:
        return "cannot tell"
    low, high = (compared.low, compared.high) if metric.better is not Better.HIGHER else (-compared.high, -compared.low)
    if high < 0:
        return "better"
    return "worse" if low > 0 else "cannot tell"
