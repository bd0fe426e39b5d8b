import gzip
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpcddm.clustering import size_penalties
from hpcddm.clustering.kmeans import KMeans, KMeansSettings
from hpcddm.clustering.nearest_centroid import NearestCentroid
from hpcddm.clustering.size_penalties import find_penalties
from tests.helpers import REPOSITORY

assignments = pytest.mark.parametrize("assignment", ["fine_lookup", "nearest_coarse"])


def settings(**changed):
    return KMeansSettings(**{"name": "kmeans", "fine_clusters": 24, "iterations": 30, "restarts": 3} | changed)


def planted():
    """Four clusters are four directions; lengths vary by a factor of about 50, and all lies far from the origin."""
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 2
    directions = np.eye(8)[labels] + 0.05 * rng.standard_normal((300, 8))
    points = rng.lognormal(0, 1, (300, 1)) * directions
    # Every point comes with its opposite, so that the mean is known to be the offset.
    return (np.concatenate([points, -points]) + 5).astype(np.float32), np.concatenate([labels, labels + 2])


@assignments
def test_finds_planted_directions(assignment):
    features, labels = planted()
    found = KMeans(settings(assignment=assignment)).fit_features(features, 4, seed=0).assign_features(features)
    pairs = set(zip(labels.tolist(), found.tolist(), strict=True))
    assert len(pairs) == 4 and {cluster for _, cluster in pairs} == {0, 1, 2, 3}


def assert_the_same_in_pieces(partition, features, clusters):
    pieces = np.split(features, [1, 2, 19, 700])
    assert np.array_equal(np.concatenate([partition.assign_features(piece) for piece in pieces]), clusters)


@assignments
def test_every_sample_has_one_cluster_however_samples_are_batched_and_it_is_the_nearest(assignment):
    features = np.random.default_rng(1).standard_normal((5000, 16)).astype(np.float32)
    partition = KMeans(settings(assignment=assignment)).fit_features(features, 5, seed=0)
    whole = partition.assign_features(features)
    assert whole.shape == (5000,) and set(whole.tolist()) == set(range(5))
    assert_the_same_in_pieces(partition, features, whole)
    assert np.array_equal(NearestCentroid(**partition.arrays()).assign_features(features), whole)
    assert partition.assign_features(features[:0]).shape == (0,)
    distances = partition.distances_features(features)
    assert distances.shape == (5000, 5) and np.array_equal(distances.argmin(1), whole)
    centred = features - partition.mean
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    squares = np.square(unit[:50, None] - partition.centroids).sum(2)
    wanted = np.stack([squares[:, partition.coarse == cluster].min(1) for cluster in range(5)], axis=1)
    assert np.allclose(distances[:50], wanted, atol=1e-5)


def test_fine_lookup_follows_the_fine_centroid_and_nearest_coarse_does_not():
    features = np.random.default_rng(1).standard_normal((3000, 4)).astype(np.float32)
    own = [settings(assignment=name) for name in ("fine_lookup", "nearest_coarse")]
    lookup, nearest = (KMeans(one).fit_features(features, 4, seed=0) for one in own)
    assert len(lookup.centroids) == 24 and len(nearest.centroids) == 4
    agreement = (lookup.assign_features(features) == nearest.assign_features(features)).mean()
    assert 0.7 < agreement < 1


def test_the_number_of_threads_changes_nothing():
    features = np.random.default_rng(2).standard_normal((12000, 32)).astype(np.float32)
    fits, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            fits.append(KMeans(settings(iterations=8, restarts=2)).fit_features(features, 4, seed=0).arrays())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for name, array in fits[0].items():
        assert np.array_equal(array, fits[1][name]) and np.array_equal(array, fits[2][name]), name


def test_trains_on_all_samples_and_not_on_256_per_centroid():
    features = np.random.default_rng(3).standard_normal((20000, 4)).astype(np.float32)
    partition = KMeans(settings(fine_clusters=2, iterations=200, restarts=1)).fit_features(features, 2, seed=0)
    centred = features - partition.mean
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    nearest = np.linalg.norm(unit[:, None] - partition.centroids, axis=2).argmin(1)
    means = np.stack([unit[nearest == k].mean(0) for k in range(2)])
    # A centroid of 512 of the 20,000 samples would be off by about 0.03.
    assert np.abs(partition.centroids - means).max() < 3e-3


@pytest.mark.parametrize(
    ("rows", "value", "complaint"), [(100, np.nan, "NaN"), (10, 0, "fewer than 24"), (100, 1, "is empty")]
)
def test_refuses_features_that_cannot_be_clustered(rows, value, complaint):
    with pytest.raises(ValueError, match=complaint):
        KMeans(settings()).fit_features(np.full((rows, 3), value, dtype=np.float32), 4, seed=0)


@pytest.fixture(scope="module")
def clothes():
    """Images of Fashion-MNIST as 14 x 14 pixels: those fitted, with one class far more often, and others like these."""
    images, labels = (
        np.frombuffer(gzip.open(REPOSITORY / f"experiments/quickstart/train-{name}-ubyte.gz").read(size), np.uint8)
        for name, size in (("images-idx3", 16 + 14_000 * 784), ("labels-idx1", 8 + 14_000))
    )
    small, labels = images[16:].reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196), labels[8:]
    skewed = small[(labels == 1) | (np.arange(len(labels)) % 3 == 0)].astype(np.float32)
    return skewed[:3000], skewed[3000:5000]


@assignments
def test_no_cluster_has_more_than_its_share_and_new_samples_come_close(clothes, assignment):
    fitted, others = clothes
    own = dict(fine_clusters=256, restarts=1, assignment=assignment)
    free, bounded = (
        KMeans(settings(**own, max_share=share)).fit_features(fitted, 8, seed=0) for share in (None, 1.1 / 8)
    )
    before, after, new = (
        np.bincount(partition.assign_features(features), minlength=8) / len(features)
        for partition, features in ((free, fitted), (bounded, fitted), (bounded, others))
    )
    assert before.max() > 1.3 / 8 and after.max() <= 1.1 / 8 and new.max() < 1.35 / 8 and after.min() > 0
    figures = bounded.figures
    assert figures["largest_share"] == after.max() and figures["largest_share_without_max_share"] == before.max()
    assert 0.99 < figures["inertia"] / figures["inertia_without_max_share"] < 1.2
    assert free.figures["inertia"] == figures["inertia_without_max_share"] and "penalties" not in free.arrays()


@assignments
def test_bounded_clusters_are_assigned_one_by_one_and_stored(clothes, assignment):
    fitted, _ = clothes
    clustering = KMeans(settings(fine_clusters=64, restarts=1, assignment=assignment, max_share=0.2))
    partition = clustering.fit_features(fitted[:1000], 8, seed=0)
    whole = partition.assign_features(fitted)
    assert_the_same_in_pieces(clustering.load(partition.arrays()), fitted, whole)


def test_prices_are_those_of_the_assignment_of_least_cost():
    points, centres = np.random.default_rng(0).standard_normal((60, 2)), np.array([[0.0, 0], [0.5, 0], [0, 1], [4, 4]])
    costs = np.square(points[:, None] - centres).sum(2)
    prices = find_penalties(costs, np.ones(60), 20)
    sizes = np.bincount((costs + prices).argmin(1), minlength=4)
    # Complementary slackness: no assignment with these capacities costs less.
    assert sizes.max() == 20 and (prices > 0).sum() >= 2
    assert (sizes[prices > 0] == 20).all() and (prices >= 0).all()


def test_equal_points_move_together_and_fine_clusters_that_are_too_heavy_are_refused(monkeypatch):
    monkeypatch.setattr(size_penalties, "MAX_BIDS", 99)
    costs = np.array([[0.0, 1.0]] * 6 + [[1.0, 0.0]] * 2)
    with pytest.raises(ValueError, match="max_share: no prices found in 99 bids; take a larger share"):
        find_penalties(costs, np.ones(8), 5)
    prices = find_penalties(costs[5:], np.array([3.0, 1, 1]), 3)
    assert (costs[5:] + prices).argmin(1).tolist() == [0, 1, 1]


def test_all_samples_need_a_place_and_all_experts_a_fine_cluster():
    eight, many = (SimpleNamespace(cluster=SimpleNamespace(experts=experts)) for experts in (8, 25))
    settings(max_share=0.125).check(eight)
    with pytest.raises(ValueError, match="max_share 0.1: 8 experts leave samples over"):
        settings(max_share=0.1).check(eight)
    with pytest.raises(ValueError, match="less than experts 25"):
        settings().check(many)
