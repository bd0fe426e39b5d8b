import numpy as np

from hpcddm.data.arrays import ArrayReader
from hpcddm.data.balanced import BalancedOrder

CLUSTERS = np.array([2] * 5 + [0] * 2 + [1] * 1)


def test_clusters_come_in_turn_and_every_sample_of_one_equally_often():
    rows = BalancedOrder(0, "s", CLUSTERS).dataset_indices(range(3 * 10))
    assert CLUSTERS[rows].tolist() == [0, 1, 2] * 10
    assert np.bincount(rows).tolist() == [2] * 5 + [5] * 2 + [10]


def test_every_epoch_of_a_cluster_has_another_order():
    own = BalancedOrder(0, "s", np.repeat([0, 1], 50)).dataset_indices(range(0, 200, 2))
    assert sorted(own[:50]) == sorted(own[50:]) == list(range(50)) and (own[:50] != own[50:]).any()


def test_what_comes_at_a_place_depends_on_nothing_else():
    whole = BalancedOrder(0, "s", CLUSTERS).dataset_indices(range(60))
    order = BalancedOrder(0, "s", CLUSTERS)
    for sample_indices in (range(40, 60), range(7), range(39, 41)):
        assert (
            order.dataset_indices(sample_indices).tolist() == whole[sample_indices.start : sample_indices.stop].tolist()
        )
    assert BalancedOrder(1, "s", CLUSTERS).dataset_indices(range(60)).tolist() != whole.tolist()


def test_a_cluster_without_samples_is_left_out():
    assert set(BalancedOrder(0, "s", np.array([0, 3, 3])).dataset_indices(range(20))) == {0, 1, 2}


def test_arrays_are_read_by_row():
    images = np.arange(24, dtype=np.uint8).reshape(4, 2, 3, 1)
    reader = ArrayReader(images, np.array([5, 6, 7, 8]), np.array([0, 0, 1, 1]))
    assert len(reader) == 4
    for rows in (range(1, 3), np.array([3, 0])):
        assert reader.images(rows).tolist() == images[list(rows)].tolist()
        assert reader.labels(rows).tolist() == [5 + row for row in rows]
        assert reader.clusters(rows).tolist() == [row // 2 for row in rows]
