"""Attacks on denoisers whose knowledge of their members is known, and what tells their scores apart."""

import numpy as np
import pytest
from scipy import stats

from tests.benchmarks.roc import area, found

IMAGES, SIDE = 40, 4


def drawn(members, others, seed, shift=0.0, decimals=None):
    """Scores of members, which are larger by `shift`, and of others; rounded, so that some are alike."""
    draw = np.random.default_rng(seed)
    sides = draw.normal(shift, 1, members), draw.normal(0, 1, others)
    return sides if decimals is None else tuple(np.round(side, decimals) for side in sides)


def test_the_area_counts_pairs():
    for shift, decimals in ((-1.0, 0), (0.0, 1), (1.5, None)):
        members, others = drawn(37, 51, 1, shift, decimals)
        pairs = [(member > other) + (member == other) / 2 for member in members for other in others]
        assert area(members, others).value == pytest.approx(np.mean(pairs), abs=1e-12)
        assert area(others, members).value == pytest.approx(1 - np.mean(pairs), abs=1e-12)
    alone = area(np.array([1.0]), np.array([0.0, 0.5]))
    assert (alone.value, alone.low, alone.high) == (1.0, 0.0, 1.0), "one image on a side says nothing"


def test_the_interval_of_the_area_holds_it_19_times_of_20():
    for shift in (0.0, 1.0):
        truth = stats.norm.cdf(shift / 2**0.5)
        estimates = [area(*drawn(60, 90, seed, shift)) for seed in range(600)]
        assert 0.92 < np.mean([estimate.low <= truth <= estimate.high for estimate in estimates]) < 0.98


def test_no_threshold_finds_more_members_at_so_few_false_alarms_and_the_interval_is_exact():
    for others, decimals in ((20, 1), (99, None), (100, 1), (300, None), (843, 1)):
        members, rest = drawn(80, others, 2, 1.5, decimals)
        thresholds = [-np.inf, *members, *rest]
        allowed = [threshold for threshold in thresholds if (rest > threshold).sum() * 100 <= others]
        assert found(members, rest).value == max(np.mean(members > threshold) for threshold in allowed), others
    rest = np.full(100, 39.5)
    rest[0] = 100
    estimate = found(np.arange(50.0), rest)
    assert estimate.value == 0.2
    assert stats.binom.sf(9, 50, estimate.low) == pytest.approx(0.025)
    assert stats.binom.cdf(10, 50, estimate.high) == pytest.approx(0.025)
