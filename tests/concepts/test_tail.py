import json

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hpcddm.concepts.tail import Misalignment, entropy_over_experts, gini, long_tail, power_law
from hpcddm.uncertainty.jackknife import rank_correlation

COUNTS = np.repeat([1, 2, 3, 4, 5, 7, 9, 12, 20, 55, 130], [30, 11, 6, 3, 2, 1, 1, 1, 1, 1, 1])
VECTORS = arrays.arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 1000))


def test_the_power_law_is_the_maximum_of_the_likelihood():
    """Made by scipy 1.17.1: root of the derivative of log zeta(a, 1) by brentq, distance at every count below 200."""
    law = power_law(COUNTS)
    assert law.exponent == pytest.approx(1.8807195629, abs=1e-8)
    assert law.error == pytest.approx(0.1215218808, rel=1e-5)
    assert law.zipf == pytest.approx(1 / 0.8807195629, abs=1e-8)
    assert law.distance == pytest.approx(0.04682410763, abs=1e-9)
    assert (law.minimum, law.concepts) == (1, 58)


def test_a_planted_exponent_is_recovered():
    """Within 1.96 standard errors in 95 % of 100 sets: 89 to 99 of them."""
    rng = np.random.default_rng(0)
    laws = [power_law(rng.zipf(2.2, 400)) for _ in range(100)]
    assert 89 <= sum(abs(law.exponent - 2.2) < 1.96 * law.error for law in laws) < 100
    assert np.median([law.distance for law in laws]) < 0.05
    assert power_law(rng.integers(50, 100, 400)).distance > 0.3


def test_the_distance_is_the_greatest_over_all_counts():
    counts = np.random.default_rng(0).integers(50, 100, 300)
    law = power_law(counts)
    every = np.arange(1.0, 201)
    expected = np.cumsum(every**-law.exponent) / float(mpmath.zeta(law.exponent))
    observed = (counts <= every[:, None]).mean(1)
    assert law.distance == pytest.approx(np.abs(expected - observed).max(), rel=1e-9)


def test_only_counts_from_the_minimum_on_are_fitted():
    assert power_law(np.append(COUNTS, [0, 0, 0])) == power_law(COUNTS)
    assert power_law(COUNTS, 3).concepts == 17
    assert power_law(np.array([0, 0])) is power_law(np.array([1, 1, 1])) is power_law(np.array([5, 4]), 5) is None
    with pytest.raises(ValueError, match="begins at 1 or more, not 0"):
        power_law(COUNTS, 0)


def test_gini_by_hand():
    assert gini(np.array([1, 1, 1, 1])) == 0
    assert gini(np.array([0, 0, 0, 8])) == 0.75
    assert gini(np.array([3, 1])) == 0.25


@given(VECTORS.filter(np.any))
def test_gini_is_the_mean_difference_over_twice_the_mean(counts):
    expected = np.abs(counts[:, None] - counts).mean() / (2 * counts.mean())
    assert gini(counts) == pytest.approx(expected, abs=1e-12)


@given(VECTORS)
def test_every_concept_is_in_one_part_of_the_tail(counts):
    shape = long_tail(counts)
    assert shape.head + shape.middle + shape.tail + shape.zero == shape.concepts == len(counts)
    assert (shape.head, shape.zero) == ((counts >= 100).sum(), (counts == 0).sum())
    assert (shape.gini is None) == (shape.head_mentions is None) == (not counts.any())
    json.dumps(shape.as_json(), allow_nan=False)


def test_parts_of_the_tail():
    shape = long_tail(np.array([0, 1, 19, 20, 99, 100, 161]))
    assert (shape.head, shape.middle, shape.tail, shape.zero) == (2, 2, 2, 1)
    assert (shape.mentions, shape.head_mentions) == (400, 261 / 400)


@pytest.mark.parametrize("head, middle", [(10, 20), (10, 0)])
def test_thresholds_in_the_wrong_order_are_refused(head, middle):
    with pytest.raises(ValueError, match="middle begins above 0"):
        long_tail(COUNTS, head, middle)


def test_negative_counts_are_refused_and_no_counts_have_no_gini():
    with pytest.raises(ValueError, match="0 or more"):
        long_tail(np.array([1, -1]))
    with pytest.raises(ValueError, match="needs a count above 0"):
        gini(np.zeros(3, int))


def test_entropy_over_experts_by_hand():
    counts = np.array([[5, 0, 0, 0], [3, 3, 3, 3], [1, 1, 0, 0], [0, 0, 0, 0], [1, 3, 0, 0]])
    expected = [0, 2, 1, np.nan, 0.8112781244591328]
    np.testing.assert_allclose(entropy_over_experts(counts), expected, rtol=1e-12)


def test_misalignment_is_that_of_the_released_counts():
    """CC3M of arXiv 2404.04125: 557,683 disjoint samples of 3,318,333; its second share implies 3,120,727 with any."""
    degree = Misalignment(disjoint=557_683, with_any=3_120_727, samples=3_318_333)
    assert degree.of_all == pytest.approx(0.16806119217088822, rel=1e-14)
    assert degree.of_any == pytest.approx(0.17870291121267576, rel=1e-7)
    assert degree.as_json()["of_any"] == degree.of_any
    assert Misalignment(0, 0, 0).of_all is Misalignment(0, 0, 5).of_any is None
    with pytest.raises(ValueError, match="6 disjoint of 5"):
        Misalignment(6, 5, 10)


def test_frequencies_of_captions_and_images_are_compared_by_rank():
    assert rank_correlation(np.array([1, 10, 100]), np.array([0, 2, 3])) == pytest.approx(1)
    assert rank_correlation(np.array([1, 1, 1]), np.array([0, 2, 3])) is None
