"""Intervals and verdicts over many draws of Gaussians: how often they hold what they should."""

from functools import cache

import numpy as np
import pytest

from hpcddm.evaluation.metrics import all_metrics
from hpcddm.evaluation.metrics.metric_inputs import ImageSet, MetricInputs
from hpcddm.evaluation.statistics.tenths import difference, interval, verdict

METRICS = {metric.key: metric for metric in all_metrics()}
IMAGES, SCALE, SHIFT = 500, np.linspace(0.8, 1.3, 6), 0.15
TRUE_DISTANCE = np.square(SCALE - 1).sum() + len(SCALE) * SHIFT**2
"""The Frechet distance between the two distributions: their covariances commute."""
EXPECTATION_DRAWS = 150
KEYS = ("fd", "kid", "fd_infinity")

# A binomial number of 20 with probability 0.95 is below 15 once in 3,000 times, and the draws are always the same.
ENOUGH = [pytest.param(20, 15 / 20, 1, id="few"), pytest.param(200, 0.9, 0.98, marks=pytest.mark.long, id="many")]


def arms(seed):
    """Two arms of one quality and a worse one, beside the same real images."""
    rng = np.random.default_rng(seed)
    real = ImageSet(features=rng.standard_normal((IMAGES, len(SCALE))))
    shifts = (SHIFT, SHIFT, 2 * SHIFT)
    drawn = (ImageSet(features=rng.standard_normal((IMAGES, len(SCALE))) * SCALE + shift) for shift in shifts)
    return [MetricInputs(samples, real, real) for samples in drawn]


def both(key, inputs):
    return METRICS[key].compute(inputs), METRICS[key].left_out(inputs)


@cache
def measured(key, draws):
    """The three arms' values and those without each tenth, by draw."""
    return [[both(key, inputs) for inputs in arms(seed)] for seed in range(draws)]


@cache
def expectations(key):
    """The mean value of the first arm and of the worse one at this number of images, from other draws."""
    seeds = range(1000, 1000 + EXPECTATION_DRAWS)
    drawn = [[METRICS[key].compute(inputs) for inputs in arms(seed)[::2]] for seed in seeds]
    return np.mean(drawn, axis=0)


def share_that_holds(estimates, truth):
    return np.mean([estimate.low <= truth <= estimate.high for estimate in estimates])


@pytest.mark.parametrize("draws, least, most", ENOUGH)
@pytest.mark.parametrize("key", KEYS)
def test_intervals_hold_the_expectation_or_the_extrapolated_the_truth(key, draws, least, most):
    truth = TRUE_DISTANCE if key == "fd_infinity" else expectations(key)[0]
    assert least <= share_that_holds([interval(*values[0]) for values in measured(key, draws)], truth) <= most


@pytest.mark.parametrize("draws, least, most", ENOUGH)
@pytest.mark.parametrize("key", ["fd", "kid"])
def test_intervals_of_differences_hold_the_difference_of_the_expectations(key, draws, least, most):
    best, worse = expectations(key)
    found = [difference(*values[0], *values[2]) for values in measured(key, draws)]
    assert least <= share_that_holds(found, best - worse) <= most
    assert np.mean([verdict(METRICS[key], one) == "better" for one in found]) > 0.9


@pytest.mark.parametrize("draws, least, most", ENOUGH)
@pytest.mark.parametrize("key", KEYS)
def test_arms_of_one_quality_cannot_be_told_apart(key, draws, least, most):
    said = [verdict(METRICS[key], difference(*values[0], *values[1])) for values in measured(key, draws)]
    assert np.mean([word == "cannot tell" for word in said]) >= least
