import json
from dataclasses import asdict

import numpy as np
import pytest

from hpcddm.evaluation.concepts.home_share import home_against_total

TOTAL = np.array([2, 3, 5, 8, 12, 20, 31, 47, 80, 120, 200, 330, 500, 800, 1300, 2000])
HOME = np.array([2, 2, 4, 3, 11, 12, 11, 40, 44, 84, 60, 297, 225, 600, 650, 1300])
SCORES = np.array([0.21, 0.18, 0.33, 0.22, 0.45, 0.37, 0.30, 0.52, 0.46, 0.55, 0.41, 0.70, 0.55, 0.71, 0.66, 0.78])
CONCEPTS = np.arange(16)


def planted(rng, of_total, of_home, concepts=80, noise=0.1, of_share=0.0):
    """Scores of concepts whose log total and share are independent; `of_share` is how easy concentrated ones are."""
    total = np.round(10 ** rng.uniform(1, 4, concepts))
    home = np.ceil(total * rng.uniform(0.15, 1, concepts))
    quality = of_total * np.log10(total) + of_home * np.log10(home) + of_share * np.log10(home / total)
    return quality + noise * rng.standard_normal(concepts), total, home, np.arange(concepts)


def covers(estimate, truth):
    return estimate.low <= truth <= estimate.high


@pytest.mark.parametrize("given, field", [(TOTAL, "home_given_total"), (HOME, "total_given_home")])
def test_partial_correlations_are_those_of_the_residuals(given, field):
    other, given = np.log10(HOME if given is TOTAL else TOTAL), np.log10(given)
    residuals = [column - np.polyval(np.polyfit(given, column, 1), given) for column in (SCORES, other)]
    estimate = getattr(home_against_total(SCORES, TOTAL, HOME, CONCEPTS).comparison, field)
    assert estimate.value == pytest.approx(np.corrcoef(residuals)[0, 1])
    assert estimate.low < estimate.value < estimate.high


SPREAD = 0.1 * np.log10(np.linspace(0.15, 1, 10_001)).std()


@pytest.mark.parametrize(
    "of_total, of_home, field, truth",
    [
        (0.1, 0, "home_given_total", 0),
        (0, 0.1, "total_given_home", 0),
        # Given the total, the share at home alone moves log10 home.
        (0, 0.1, "home_given_total", SPREAD / np.hypot(SPREAD, 0.1)),
    ],
)
def test_what_matters_is_recovered_and_what_does_not_correlates_with_nothing(of_total, of_home, field, truth):
    """In 95 % of 200 sets: 180 to 199 of them, which intervals of exactly 95 % do in 99.8 % of cases."""
    rng = np.random.default_rng(0)
    found = [getattr(home_against_total(*planted(rng, of_total, of_home)).comparison, field) for _ in range(200)]
    assert 180 <= sum(covers(estimate, truth) for estimate in found) < 200
    assert np.mean([estimate.value for estimate in found]) == pytest.approx(truth, abs=0.01)


def test_a_difference_of_arms_takes_off_what_makes_concentrated_concepts_easy():
    """The monolith has the same ease of concentrated concepts, and no home: only the difference tells the two apart."""
    rng = np.random.default_rng(0)
    ensemble, total, home, concepts = planted(rng, 0.1, 0, 400, of_share=0.5)
    monolith = ensemble - 0.02 + 0.1 * rng.standard_normal(400)
    alone = home_against_total(ensemble, total, home, concepts).comparison
    difference = home_against_total(ensemble - monolith, total, home, concepts).comparison
    assert alone.home_given_total.low > 0.3 and covers(difference.home_given_total, 0)


def test_seeds_are_no_independent_concepts():
    scores, total, home, concepts = planted(np.random.default_rng(0), 0, 0.1)
    alone = home_against_total(scores, total, home, concepts)
    levels = np.repeat([0.0, 0.2, 0.5], 80)
    rows = [np.tile(column, 3) for column in (scores, total, home, concepts)]
    many = home_against_total(rows[0] + levels, *rows[1:], runs=np.repeat([0, 1, 2], 80))
    assert (many.concepts, many.runs) == (80, 3)
    assert many.comparison.home_given_total.low == pytest.approx(alone.comparison.home_given_total.low)


@pytest.mark.parametrize(
    "total, home, reason",
    [
        (TOTAL * 8, TOTAL, "share at home hardly differs between concepts of one total frequency"),
        (TOTAL, TOTAL, "share at home hardly differs"),
        (np.full(16, 5000), TOTAL, "nearly the same total frequency"),
        (TOTAL + 10, np.full(16, 2), "nearly the same home frequency"),
    ],
)
def test_what_cannot_be_told_apart_is_said(total, home, reason):
    result = home_against_total(SCORES, total, home, CONCEPTS)
    assert result.comparison is None
    assert result.not_identified.startswith("not identified: ") and reason in result.not_identified
    json.dumps(asdict(result), allow_nan=False)


def test_a_share_that_only_rounding_moves_is_no_spread():
    total = np.round(10 ** np.random.default_rng(0).uniform(2, 4, 200))
    result = home_against_total(total % 7, total, np.round(total / 3), np.arange(200))
    assert result.comparison is None and 0 < result.spread["home given total"] < 0.002
    assert home_against_total(total % 7, total, np.round(total / 3), np.arange(200), least_spread=1e-5).comparison


def test_few_concepts_are_said():
    result = home_against_total(SCORES[:9], TOTAL[:9], HOME[:9], CONCEPTS[:9])
    assert result.not_identified == "this needs 10 concepts with samples at home and an outcome, and there are 9"
    assert result.comparison is None


def test_concepts_without_samples_and_rows_without_outcome_are_counted():
    scores = np.append(SCORES, [0.1, 0.2, np.nan])
    total, home = np.append(TOTAL, [0, 5, 50]), np.append(HOME, [0, 0, 20])
    result = home_against_total(scores, total, home, np.arange(19))
    assert (result.concepts, result.zeros, result.dropped) == (16, 2, 1)
    assert result.comparison == home_against_total(SCORES, TOTAL, HOME, CONCEPTS).comparison


def test_equal_outcomes_correlate_with_nothing():
    equal = home_against_total(np.full(16, 0.4), TOTAL, HOME, CONCEPTS)
    assert equal.comparison.home_given_total is equal.comparison.total_given_home is None


def test_more_at_home_than_in_total_names_the_concept():
    names = np.array([f"concept-{number}" for number in CONCEPTS])
    with pytest.raises(ValueError, match="concept-3 has more samples at home than in total"):
        home_against_total(SCORES, TOTAL, np.where(CONCEPTS == 3, 9, HOME), names)
