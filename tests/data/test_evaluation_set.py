"""Which real images the evaluation takes."""

import numpy as np
import pytest

from hpcddm.data import evaluation_set
from hpcddm.errors import UserError


def test_balanced_samples_are_the_first_of_every_class_in_turn():
    labels = np.array([2, 0, 0, 1, 2, 1, 0, 1, 2])
    chosen = evaluation_set.choose_balanced(labels, class_names="abc", count=6, split="heldout")
    assert labels[chosen].tolist() == [0, 1, 2, 0, 1, 2] and chosen.tolist() == [1, 3, 0, 2, 5, 4]


def test_too_few_of_a_class_are_named_with_what_would_do():
    with pytest.raises(UserError, match="6 images need 2 heldout images of class b, there are 1; at most 3 can be bal"):
        evaluation_set.choose_balanced(np.array([0, 0, 1, 2, 2]), class_names="abc", count=6, split="heldout")


def test_without_classes_samples_are_drawn_at_random_and_always_the_same():
    first, again = (evaluation_set.choose_random(50, 20, "train") for _ in range(2))
    assert len(set(first.tolist())) == 20 and 0 <= first.min() and first.max() < 50
    assert (first == again).all() and (first != np.arange(20)).any()
    # A smaller evaluation takes the first of a larger.
    assert (evaluation_set.choose_random(50, 10, "train") == first[:10]).all()
    with pytest.raises(UserError, match="51 images need as many train images; take at most 50"):
        evaluation_set.choose_random(50, 51, "train")


def test_classes_drawn_at_random_depend_on_seed_and_number_alone():
    labels = np.tile(np.arange(5), 2000)
    drawn, fewer, other = (
        labels[evaluation_set.random_classes(count, 5, seed)] for count, seed in ((10_000, 0), (50, 0), (10_000, 1))
    )
    assert (drawn[:50] == fewer).all() and (drawn != other).any()
    # 2,000 of each class are expected, with a standard deviation of 40.
    counts = np.bincount(drawn)
    assert (abs(counts - 2000) < 160).all() and counts.std() > 5
    # With replacement: no class waits until the others had their turn.
    assert 0.15 < (drawn[1:] == drawn[:-1]).mean() < 0.25
