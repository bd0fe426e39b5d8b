import numpy as np
import pytest

from hpcddm.data.order import BalancedOrder, SampleOrder

CLUSTERS = np.array([2] * 5 + [0] * 2 + [1] * 1)


@pytest.mark.parametrize("size", [1, 2, 13])
def test_every_epoch_is_a_new_permutation(size):
    order = SampleOrder(seed=3, stream="train/x", size=size)
    epochs = [order.dataset_indices(range(epoch * size, (epoch + 1) * size)).tolist() for epoch in range(20)]
    assert all(sorted(epoch) == list(range(size)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == (20 if size == 13 else min(2, size))


def test_what_comes_at_a_place_depends_on_the_place_alone():
    whole = SampleOrder(1, "s", 10).dataset_indices(range(35))
    late = SampleOrder(1, "s", 10)
    assert late.dataset_indices(range(25, 35)).tolist() == whole[25:].tolist()
    assert late.dataset_indices([3, 29, 3]).tolist() == whole[[3, 29, 3]].tolist()
    for other in (SampleOrder(2, "s", 10), SampleOrder(1, "r", 10)):
        assert other.dataset_indices(range(35)).tolist() != whole.tolist()


def test_clusters_come_in_turn_and_every_sample_of_one_equally_often():
    rows = BalancedOrder(0, "s", CLUSTERS).dataset_indices(range(3 * 10))
    assert CLUSTERS[rows].tolist() == [0, 1, 2] * 10
    assert np.bincount(rows).tolist() == [2] * 5 + [5] * 2 + [10]


def test_every_epoch_of_a_cluster_has_another_order():
    own = BalancedOrder(0, "s", np.repeat([0, 1], 50)).dataset_indices(range(0, 200, 2))
    assert sorted(own[:50]) == sorted(own[50:]) == list(range(50)) and (own[:50] != own[50:]).any()


def test_what_comes_at_a_place_of_a_balanced_order_depends_on_nothing_else():
    whole = BalancedOrder(0, "s", CLUSTERS).dataset_indices(range(60))
    order = BalancedOrder(0, "s", CLUSTERS)
    for sample_indices in (range(40, 60), range(7), range(39, 41)):
        assert (
            order.dataset_indices(sample_indices).tolist() == whole[sample_indices.start : sample_indices.stop].tolist()
        )
    assert BalancedOrder(1, "s", CLUSTERS).dataset_indices(range(60)).tolist() != whole.tolist()


def test_a_cluster_without_samples_is_left_out():
    assert set(BalancedOrder(0, "s", np.array([0, 3, 3])).dataset_indices(range(20))) == {0, 1, 2}
