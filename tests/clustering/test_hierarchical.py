"""Agglomeration against merging by definition, and clusters of any form."""

import numpy as np
import pytest

from hpcddm.clustering.hierarchical import Hierarchical, HierarchicalSettings, merge_clusters
from hpcddm.clustering.kmeans import KMeans, KMeansSettings


def settings(**changed):
    own = {"name": "hierarchical", "fine_clusters": 40, "iterations": 30, "restarts": 2, "metric": "euclidean"}
    return HierarchicalSettings(**own | changed)


def inertia(points, weights):
    mean = np.average(points, axis=0, weights=weights)
    return (weights * np.square(points - mean).sum(1)).sum()


def rise(points, weights, one, other):
    after, *before = (inertia(points[rows], weights[rows]) for rows in (one + other, one, other))
    return after - sum(before)


def mean_square(points, weights, one, other):
    squares = np.square(points[one][:, None] - points[other]).sum(2)
    return (squares * np.outer(weights[one], weights[other])).sum() / (weights[one].sum() * weights[other].sum())


@pytest.mark.parametrize("linkage, distance", [("ward", rise), ("average", mean_square)])
@pytest.mark.parametrize("num_clusters", [1, 4, 11, 29])
def test_merges_are_those_of_the_definition(linkage, distance, num_clusters):
    rng = np.random.default_rng(num_clusters)
    points, weights = rng.standard_normal((30, 3)), rng.integers(1, 40, 30).astype(np.float64)
    clusters = [[point] for point in range(30)]
    while len(clusters) > num_clusters:
        pairs = [(one, other) for one in range(len(clusters)) for other in range(one)]
        one, other = min(pairs, key=lambda pair: distance(points, weights, *(clusters[part] for part in pair)))
        clusters[other] += clusters.pop(one)
    wanted = np.empty(30, dtype=np.int64)
    for number, members in enumerate(sorted(clusters, key=min)):
        wanted[members] = number
    assert np.array_equal(merge_clusters(points, weights, num_clusters, linkage), wanted)


def rings():
    """Three rings around one centre, equally many samples in each."""
    rng = np.random.default_rng(0)
    labels = np.arange(3000) % 3
    angles = rng.random(3000) * 2 * np.pi
    radii = (1 + 4 * labels + 0.05 * rng.standard_normal(3000))[:, None]
    return (radii * np.stack([np.cos(angles), np.sin(angles)], 1)).astype(np.float32), labels


def test_long_clusters_that_lie_side_by_side_stay_whole():
    rng = np.random.default_rng(0)
    labels = np.arange(2000) % 2
    features = np.stack([40 * rng.random(2000), 6 * labels + 0.2 * rng.standard_normal(2000)], 1).astype(np.float32)
    partition = Hierarchical(settings(fine_clusters=24, linkage="average")).fit_features(features, 12, seed=0)
    clusters = partition.assign_features(features)
    # No coarse cluster has samples of both stripes.
    assert all(len(set(labels[clusters == cluster])) == 1 for cluster in range(12))
    restored = Hierarchical(settings(fine_clusters=24)).load(partition.arrays())
    assert np.array_equal(restored.assign_features(features), clusters)


def test_ward_weighted_by_sizes_has_less_inertia_than_unweighted_kmeans_of_the_centroids():
    rng = np.random.default_rng(1)
    # Most samples in a few places, the others far and wide: a centroid of few counts as much as one of many.
    centres = 6 * rng.standard_normal((30, 8))
    counts = (4000 * 0.75 ** np.arange(30)).astype(int) + 20
    places = centres.repeat(counts, axis=0)
    features = (places + rng.standard_normal(places.shape)).astype(np.float32)
    ward = Hierarchical(settings(fine_clusters=120)).fit_features(features, 6, seed=0)
    own = KMeansSettings(name="kmeans", fine_clusters=120, iterations=30, restarts=2, metric="euclidean")
    unweighted = KMeans(own).fit_features(features, 6, seed=0)
    assert ward.figures["inertia"] < unweighted.figures["inertia"]


def test_no_cluster_has_more_than_its_share_and_a_wide_bound_changes_nothing():
    features, _ = rings()
    free, wide, bounded = (
        Hierarchical(settings(max_share=share)).fit_features(features, 3, seed=0) for share in (None, 0.99, 0.36)
    )
    sizes = np.bincount(bounded.assign_features(features), minlength=3) / len(features)
    assert np.array_equal(free.coarse, wide.coarse) and not np.array_equal(free.coarse, bounded.coarse)
    assert sizes.max() <= 0.36 and bounded.figures["largest_share"] == sizes.max()
    assert bounded.figures["inertia_without_max_share"] == free.figures["inertia"]
    assert free.figures["largest_share"] > 0.36
