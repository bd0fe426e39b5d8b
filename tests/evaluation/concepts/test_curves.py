import json
import time
from dataclasses import asdict

import numpy as np
import pytest

from hpcddm.evaluation.concepts.curves import fit_curve, half_decades

SLOPE, NOISE, DECADES = 0.1, 0.15, 3.0


def planted(rng, concepts=60, slope=SLOPE, noise=NOISE):
    """Frequencies, log-uniform over three decades, and scores on a line with noise."""
    logs = rng.uniform(0, DECADES, concepts)
    return 10**logs, 0.2 + slope * logs + noise * rng.standard_normal(concepts)


def covers(estimate, truth):
    return estimate.low <= truth <= estimate.high


def test_line_and_r_are_those_of_numpy():
    frequencies, scores = planted(np.random.default_rng(0))
    fit = fit_curve(frequencies, scores, np.arange(60)).fit
    slope, intercept = np.polyfit(np.log10(frequencies), scores, 1)
    assert (fit.slope.value, fit.intercept.value) == pytest.approx((slope, intercept))
    assert fit.pearson.value == pytest.approx(np.corrcoef(np.log10(frequencies), scores)[0, 1])
    at = {round(np.log10(point.frequency), 6): point.score for point in fit.line}
    assert list(at)[1:-1] == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert all(point.value == pytest.approx(intercept + slope * place, abs=1e-6) for place, point in at.items())
    assert at[1.5].high - at[1.5].low < fit.intercept.high - fit.intercept.low


@pytest.mark.parametrize("concepts", [15, 60])
def test_a_planted_law_is_recovered_as_often_as_the_interval_says(concepts):
    rng = np.random.default_rng(concepts)
    spread = SLOPE * DECADES / np.sqrt(12)
    truths = {"slope": SLOPE, "intercept": 0.2, "pearson": spread / np.hypot(spread, NOISE)}
    fits = [fit_curve(*planted(rng, concepts), np.arange(concepts)).fit for _ in range(200)]
    covered = {name: sum(covers(getattr(fit, name), truth) for fit in fits) for name, truth in truths.items()}
    # Intervals of exactly 95 % do so in 99.8 % of cases.
    assert all(180 <= count < 200 for count in covered.values()), covered
    assert np.mean([fit.slope.value for fit in fits]) == pytest.approx(SLOPE, abs=0.01)


def test_seeds_are_no_independent_concepts():
    """Copies of the same scores narrow nothing, and the runs' own levels move neither slope nor r."""
    frequencies, scores = planted(np.random.default_rng(0))
    alone = fit_curve(frequencies, scores, np.arange(60))
    levels = np.array([-0.3, 0.0, 0.3])
    concepts, runs = np.tile(np.arange(60), 3), np.repeat(["a", "b", "c"], 60)
    many = fit_curve(np.tile(frequencies, 3), (scores + levels[:, None]).ravel(), concepts, runs)
    assert (many.concepts, many.runs) == (60, 3)
    for name in ("slope", "intercept", "pearson"):
        expected, pooled = getattr(alone.fit, name), getattr(many.fit, name)
        assert (pooled.value, pooled.low, pooled.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_a_run_that_misses_the_easy_concepts_does_not_bend_the_line():
    frequencies, scores = planted(np.random.default_rng(0), noise=0)
    twice = np.concatenate([scores, np.where(frequencies > 100, np.nan, scores + 0.5)])
    curve = fit_curve(np.tile(frequencies, 2), twice, np.tile(np.arange(60), 2), np.repeat([0, 1], 60))
    assert curve.fit.slope.value == pytest.approx(SLOPE)
    assert curve.dropped == (frequencies > 100).sum()


def test_zeros_are_a_row_of_their_own():
    frequencies, scores = planted(np.random.default_rng(0))
    with_zeros = fit_curve(np.append(frequencies, np.zeros(4)), np.append(scores, [0.0, 0.2, 0.1, 0.1]), np.arange(64))
    without = fit_curve(frequencies, scores, np.arange(60))
    assert with_zeros.fit == without.fit and with_zeros.bins == without.bins
    assert without.zeros is None
    assert (with_zeros.concepts, with_zeros.zeros.concepts) == (60, 4)
    # scipy 1.17.1: stats.ttest_1samp([0, 0.2, 0.1, 0.1], 0).confidence_interval()
    estimate = with_zeros.zeros.score
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.1, -0.029922823, 0.229922823), rel=1e-6)


def test_bins_are_half_decades():
    frequencies = np.array([1, 3, 4, 9, 10, 31, 32, 999, 1000, 0.5])
    np.testing.assert_array_equal(half_decades(frequencies), [0, 0, 1, 1, 2, 2, 3, 5, 6, -1])
    np.testing.assert_array_equal(half_decades(10 ** np.arange(12)), 2 * np.arange(12))
    scores = np.arange(10.0)
    bins = fit_curve(frequencies, scores, np.arange(10)).bins
    assert [entry.concepts for entry in bins] == [1, 2, 2, 2, 1, 1, 1]
    assert bins[1].frequency == pytest.approx(np.sqrt(3)) and bins[1].score.value == 0.5
    assert (bins[2].low, bins[2].high) == pytest.approx((10**0.5, 10))


@pytest.mark.parametrize(
    "frequencies, reason",
    [
        ([5, 0, 0, 0, 0], "needs 4 concepts with a frequency above 0 and a score, and there are 1"),
        ([0] * 5, "there are 0"),
        ([7] * 5, "all 5 concepts have the same frequency"),
    ],
)
def test_where_no_line_can_be_fitted_the_curve_says_why(frequencies, reason):
    curve = fit_curve(np.array(frequencies), np.arange(5.0), np.arange(5))
    assert curve.fit is None and reason in curve.no_fit
    assert (curve.zeros.concepts if curve.zeros else 0) == frequencies.count(0)
    assert sum(entry.concepts for entry in curve.bins) == 5 - frequencies.count(0)


def test_a_line_that_hangs_on_one_concept_has_no_interval():
    """Of those without it the logarithms are equal but for rounding."""
    for concepts in range(5, 25):
        frequencies = np.append(np.full(concepts - 1, 7), 1000)
        fit = fit_curve(frequencies, np.random.default_rng(0).random(concepts), np.arange(concepts)).fit
        assert fit.slope.low is fit.slope.high is fit.pearson.low is None, concepts


def test_equal_scores_have_a_slope_of_zero_and_no_r():
    fit = fit_curve(np.array([1, 10, 100, 1000, 30]), np.full(5, 0.3), np.arange(5)).fit
    assert (fit.slope.value, fit.slope.low, fit.slope.high) == (0, 0, 0)
    assert fit.pearson is None


def test_json_holds_the_curve():
    frequencies, scores = planted(np.random.default_rng(0))
    curve = fit_curve(frequencies, scores, np.arange(60))
    stored = json.loads(json.dumps(asdict(curve), allow_nan=False))
    assert stored["fit"]["slope"]["low"] == curve.fit.slope.low
    assert sum(entry["concepts"] for entry in stored["bins"]) == 60


def test_a_thousand_concepts_of_three_runs_take_no_time():
    frequencies, quality = (np.tile(values, 3) for values in planted(np.random.default_rng(0), 1000))
    start = time.process_time()
    fit_curve(frequencies, quality, np.tile(np.arange(1000), 3), np.repeat(np.arange(3), 1000))
    assert time.process_time() - start < 2
