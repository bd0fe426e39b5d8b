import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddm.evaluation.concepts.pooling import pool, without_run_effects


def panel(concepts=6, runs=3, seed=0):
    rng = np.random.default_rng(seed)
    quality, effects = rng.standard_normal(concepts), rng.standard_normal(runs)
    concept, run = np.divmod(np.arange(concepts * runs), runs)
    return quality, effects, concept, run, quality[concept] + effects[run]


def test_of_a_balanced_panel_the_effects_are_the_run_means():
    _, _, concept, run, scores = panel()
    scores = scores + np.random.default_rng(1).standard_normal(len(scores))
    means = np.array([scores[run == number].mean() for number in range(3)])
    expected = scores - means[run] + scores.mean()
    np.testing.assert_allclose(without_run_effects(scores, concept, run), expected, rtol=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_of_an_unbalanced_panel_the_order_of_concepts_is_exact(seed):
    quality, _, concept, run, scores = panel(seed=seed)
    # The first run scores all concepts, so that all runs are compared through them.
    kept = (np.random.default_rng(seed + 1).random(len(run)) < 0.6) | (run == 0)
    adjusted = without_run_effects(scores[kept], concept[kept], run[kept])
    np.testing.assert_allclose(np.ptp(adjusted - quality[concept[kept]]), 0, atol=1e-9)
    assert adjusted.mean() == pytest.approx(scores[kept].mean())


def test_a_run_of_other_concepts_is_left_as_it_is():
    scores, concepts, runs = np.array([1.0, 2.0, 8.0, 9.0]), np.arange(4), np.array([0, 0, 1, 1])
    np.testing.assert_allclose(without_run_effects(scores, concepts, runs), scores)


def test_rows_without_a_score_are_dropped_and_counted():
    scores, concepts = np.array([1.0, np.nan, 3.0, np.inf]), np.array(["a", "a", "b", "b"])
    pooled = pool(scores, np.array([[10], [10], [100], [100]]), concepts)
    assert (pooled.dropped, pooled.runs) == (2, 1)
    np.testing.assert_allclose(pooled.per_concept(np.ones(2, bool)), [[1, 1], [3, 2]])


def test_names_and_numbers_are_the_same_concepts():
    scores, frequencies = np.array([1.0, 2.0, 4.0]), np.array([[10], [10], [1000]])
    every = np.ones(3, bool)
    by_name = pool(scores, frequencies, np.array(["cat", "cat", "dog"])).per_concept(every)
    np.testing.assert_allclose(by_name, pool(scores, frequencies, np.array([7, 7, 9])).per_concept(every))
    np.testing.assert_allclose(by_name, [[1.5, 1], [4, 3]])


def test_frequencies_are_counts_and_one_row_needs_a_score():
    for frequency in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="negative or not finite"):
            pool(np.ones(2), np.array([[1.0], [frequency]]), np.arange(2))
    with pytest.raises(ValueError, match="none of 3 rows"):
        pool(np.full(3, np.nan), np.ones((3, 1)), np.arange(3))
