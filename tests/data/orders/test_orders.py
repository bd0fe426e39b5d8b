"""Orders of training samples: every sample once in an epoch, a new order each time, a function of the index alone."""

import numpy as np
import pytest

from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import Column
from hpcddm.data.orders.base import ListOrder
from hpcddm.data.run_samples import balanced_order
from tests.helpers import tiny
from tests.orders import uniform, windowed

CLUSTERS = np.array([2] * 5 + [0] * 2 + [1] * 1)
ORDERS = {"uniform": uniform, "windowed": windowed}
every_order = pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS)


@every_order
@pytest.mark.parametrize("size", [1, 2, 6, 7, 8, 21, 22, 43, 2_000])
def test_every_epoch_is_a_new_permutation(make, size):
    order = make(3, "train/x", size)
    epochs = [order.sample_numbers(range(epoch * size, (epoch + 1) * size)) for epoch in range(8)]
    assert all(np.array_equal(np.sort(epoch), np.arange(size)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == (8 if size > 5 else size)


@every_order
@pytest.mark.long
def test_every_epoch_has_every_row_once_at_every_size_to_ten_thousand(make):
    for size in range(1, 10_001):
        rows = make(0, "s", size).sample_numbers(range(size, 2 * size))
        assert np.bincount(rows, minlength=size).tolist() == [1] * size, size


@every_order
def test_the_row_at_an_index_depends_on_the_index_alone(make):
    whole = make(1, "s", 100).sample_numbers(range(350))
    late = make(1, "s", 100)
    assert late.sample_numbers(range(250, 350)).tolist() == whole[250:].tolist()
    assert late.sample_numbers([3, 299, 3]).tolist() == whole[[3, 299, 3]].tolist()
    for other in (make(2, "s", 100), make(1, "r", 100)):
        assert np.count_nonzero(other.sample_numbers(range(350)) == whole) < 30


def test_a_window_reads_few_blocks_and_mixes_them():
    order = windowed(0, "s", 70_000, block=100, mixed=5)
    for start in (0, 500, 35_000):
        rows = order.sample_numbers(range(start, start + 500))
        # Blocks of the epoch begin at its own place, so each lies in two of the file.
        assert len(set((rows // 100).tolist())) <= 10
        assert np.count_nonzero(np.diff(rows) == 1) < 10


def test_blocks_come_in_random_order_and_the_last_rows_change():
    order = windowed(0, "s", 1030, block=100, mixed=2)
    firsts = [order.sample_numbers([window * 200])[0] for window in range(5)]
    assert np.ptp(firsts) > 300
    ends = [order.sample_numbers(range(end - 30, end)) for end in range(1030, 11 * 1030, 1030)]
    assert len({tuple(sorted(rows)) for rows in ends}) == 10


@pytest.fixture
def balanced(tmp_path):
    experiment = tiny(tmp_path)

    def order(clusters, stream="s"):
        lists = [np.flatnonzero(clusters == cluster) for cluster in range(clusters.max() + 1)]
        return balanced_order(experiment, stream, lists)

    return order


def test_clusters_come_in_turn_and_every_sample_of_one_equally_often(balanced):
    rows = balanced(CLUSTERS).sample_numbers(range(3 * 10))
    assert CLUSTERS[rows].tolist() == [0, 1, 2] * 10
    assert np.bincount(rows).tolist() == [2] * 5 + [5] * 2 + [10]
    own = balanced(np.repeat([0, 1], 50)).sample_numbers(range(0, 200, 2))
    assert sorted(own[:50]) == sorted(own[50:]) == list(range(50)) and (own[:50] != own[50:]).any()
    # A cluster without samples is left out.
    assert set(balanced(np.array([0, 3, 3])).sample_numbers(range(20)).tolist()) == {0, 1, 2}


def test_a_list_in_a_file_is_gone_through_by_its_rows(tmp_path):
    numbers = np.array([3, 5, 8, 13, 1 << 31], dtype=np.uint32)
    write_columns(tmp_path / "list.h5", {"numbers": numbers})
    order = uniform(0, "s", 5)
    listed = ListOrder(Column("numbers", {tmp_path / "list.h5": 5}), order)
    rows = listed.sample_numbers(range(12))
    assert rows.dtype == np.int64 and listed.size == 5
    assert rows.tolist() == numbers[order.sample_numbers(range(12))].tolist()
