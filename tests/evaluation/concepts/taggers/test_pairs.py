import numpy as np
import pytest

from hpcddm.evaluation.concepts.taggers.pairs import BalancedOrder, TrainingPairs

LISTS = [np.array(own, np.int64) for own in ([0], [], [2, 0], [0], [1, 2], [0, 0])]
"""Concept 0 of four images, 1 of one, 2 of two."""


def listed(pairs, count=6):
    return [pairs.concepts[pairs.rows == row].tolist() for row in range(count)]


def test_every_pair_stands_there_once():
    assert listed(TrainingPairs.of_lists(LISTS)) == [[0], [], [0, 2], [0], [1, 2], [0]]
    assert len(TrainingPairs.of_lists([]).rows) == len(TrainingPairs.of_lists([np.array([], np.int64)] * 3).rows) == 0


def test_parts_of_the_rows():
    pairs = TrainingPairs.of_lists(LISTS)
    assert listed(pairs.where(np.array([True, True, False, False, True, True]))) == [[0], [], [], [], [1, 2], [0]]
    assert listed(pairs.among(np.array([1, 2, 4])), 3) == [[], [0, 2], [1, 2]]
    places, concepts = pairs.of_rows(np.array([4, 1, 2, 4]))
    assert (places.tolist(), concepts.tolist()) == ([0, 0, 2, 2, 3, 3], [1, 2, 0, 2, 1, 2])


def test_a_rare_concept_is_drawn_as_often_as_a_frequent_one_and_all_its_images_are():
    frequent = [np.array([0], np.int64)] * 400
    rare = [np.array([7], np.int64), np.array([7, 9], np.int64)]
    order = BalancedOrder(TrainingPairs.of_lists(frequent + rare), 0, "test")
    assert order.concepts.tolist() == [0, 7, 9]
    rows, places = order.at(range(3000))
    assert np.bincount(places) == pytest.approx(1000, abs=100)
    assert (rows[places == 0] < 400).all() and len(np.unique(rows[places == 0])) > 350
    assert set(rows[places == 2]) == {401}
    assert np.bincount(rows[places == 1], minlength=402)[[400, 401]] == pytest.approx(500, abs=70)


def test_an_order_is_a_function_of_seed_stream_and_index():
    pairs = TrainingPairs.of_lists(LISTS)
    whole = np.stack(BalancedOrder(pairs, 0, "a").at(range(60)))
    parts = [np.stack(BalancedOrder(pairs, 0, "a").at(part)) for part in (range(25), range(25, 60))]
    assert np.array_equal(np.concatenate(parts, 1), whole)
    for other in (BalancedOrder(pairs, 1, "a"), BalancedOrder(pairs, 0, "b")):
        assert not np.array_equal(np.stack(other.at(range(60))), whole)


def test_a_choice_of_images_begins_with_the_rare_concepts():
    concepts = np.repeat([0, 1, 2, 3], [900, 90, 9, 1])
    pairs = TrainingPairs.of_lists([np.array([concept], np.int64) for concept in concepts])
    chosen = pairs.balanced(100, 0, "test")
    assert np.bincount(concepts[chosen]).tolist() == [45, 45, 9, 1]
    assert np.array_equal(chosen, np.unique(chosen)) and chosen[44] > 500
    assert np.array_equal(pairs.balanced(5000, 0, "test"), np.arange(1000))
    assert len(TrainingPairs.of_lists([]).balanced(5, 0, "test")) == 0
