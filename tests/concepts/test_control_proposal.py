"""The control of a proposal moves as many samples between the same clusters, and other ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.control_proposal import control


@given(st.integers(0, 999))
def test_as_many_move_between_the_same_clusters(seed):
    generator = np.random.default_rng(seed)
    clusters = generator.integers(0, 4, 60)
    proposed = np.where(generator.random(60) < 0.3, generator.integers(0, 4, 60), clusters)
    moved = control(clusters, proposed, generator)

    def moves(target):
        return np.histogram2d(clusters, target, bins=[range(5), range(5)])[0].tolist()

    assert moves(moved) == moves(proposed)
