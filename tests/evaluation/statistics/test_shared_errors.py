"""Items that share errors: how many independent ones they count as."""

import numpy as np
import pytest

from hpcddm.evaluation.statistics.shared_errors import effective_number


def test_items_whose_errors_are_one_count_once():
    assert effective_number(np.ones((8, 8)), 8) == pytest.approx(1)


def test_pairs_with_one_error_each_count_as_half():
    assert effective_number(np.kron(np.eye(4), np.ones((2, 2))), 8) == pytest.approx(4)


def test_items_without_common_errors_all_count():
    assert effective_number(np.eye(8), 8) == pytest.approx(8) == effective_number(None, 8)
