import numpy as np
import pytest

from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import Column
from hpcddm.data.other_clusters import count_from_other_clusters, mix_in_other_clusters
from hpcddm.errors import UserError

COUNT = 150_000
CLUSTERS = np.random.default_rng(0).choice(4, COUNT, p=[0.1, 0.2, 0.3, 0.4]).astype(np.uint16)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    path = tmp_path_factory.mktemp("clusters") / "clusters.h5"
    write_columns(path, {"cluster": CLUSTERS})
    return Column("cluster", {path: COUNT})


def listed(clusters, cluster, count, seed=0):
    others = int((CLUSTERS != cluster).sum())
    return np.concatenate(list(mix_in_other_clusters(clusters, cluster, others, count, seed)))


@pytest.mark.parametrize("cluster", range(4))
def test_a_list_has_all_of_its_cluster_and_so_many_of_the_others_evenly(clusters, cluster):
    numbers = listed(clusters, cluster, 9000)
    assert (np.diff(numbers.astype(int)) > 0).all()
    assert np.array_equal(numbers[CLUSTERS[numbers] == cluster], np.flatnonzero(CLUSTERS == cluster))
    foreign = numbers[CLUSTERS[numbers] != cluster]
    assert len(foreign) == 9000
    sizes = np.bincount(CLUSTERS, minlength=4) * (np.arange(4) != cluster)
    assert np.allclose(np.bincount(CLUSTERS[foreign], minlength=4), 9000 * sizes / sizes.sum(), atol=5 * 9000**0.5)
    assert np.allclose(np.histogram(foreign, 10, (0, COUNT))[0], 900, atol=150)


def test_draws_differ_by_cluster_and_seed_and_more_are_the_same_and_others(clusters):
    few, more, other = listed(clusters, 0, 3000), listed(clusters, 0, 9000), listed(clusters, 0, 3000, seed=1)
    assert np.isin(few, more).all()
    foreign = [set(numbers[CLUSTERS[numbers] > 1]) for numbers in (few, other, listed(clusters, 1, 3000))]
    assert all(len(one & two) < 200 for one, two in [(foreign[0], foreign[1]), (foreign[0], foreign[2])])


@pytest.mark.parametrize("own, share, count", [(90, 0.1, 10), (75, 0.25, 25), (1, 0.001, 0), (50, 0.5, 50)])
def test_the_share_is_that_of_the_whole_list(own, share, count):
    assert count_from_other_clusters(share, own, 50, 0) == count


def test_more_than_there_are_are_refused_with_the_most_that_can_be():
    with pytest.raises(UserError, match=r"other_clusters_share: cluster 2 has 60 .* only 40 .* take at most 0\.4$"):
        count_from_other_clusters(0.5, 60, 40, 2)
    assert count_from_other_clusters(0.4, 60, 40, 2) == 40
