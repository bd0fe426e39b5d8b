"""The kernel of k-means against plain float64, and what must not change its bits."""

from functools import partial

import numpy as np
import pytest

from hpcddm.clustering.base import NotFinite, Workspace
from hpcddm.clustering.centroids import Centroids
from hpcddm.clustering.kmeans import KMeans, KMeansSettings
from hpcddm.clustering.lloyd import iterate, lloyd, tally
from hpcddm.clustering.samples import Samples
from tests.helpers import python


def drawn(count, dimensions, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float32)


def plain(points, centroids, iterations):
    points, centroids = points.astype(np.float64), centroids.astype(np.float64)
    for _ in range(iterations):
        nearest = squares_to(points, centroids).argmin(1)
        centroids = np.stack([points[nearest == cluster].mean(0) for cluster in range(len(centroids))])
    return centroids


def test_iterations_are_those_of_lloyd():
    points = drawn(9000, 6)
    inertia, centroids = iterate(points, points[:7], 12)
    wanted, before = (plain(points, points[:7], iterations) for iterations in (12, 11))
    assert np.abs(centroids - wanted).max() < 1e-6
    squares = squares_to(points, before).min(1)
    assert inertia + np.square(points, dtype=np.float64).sum() == pytest.approx(squares.sum(), rel=1e-6)


def squares_to(points, centroids):
    return np.square(points[:, None].astype(np.float64) - centroids).sum(2)


def test_float64_decides_what_float32_leaves_open():
    rng = np.random.default_rng(0)
    centroid = rng.standard_normal(64)
    # Differences of float32's last digits: it cannot tell these centroids apart.
    centroids = (centroid + 1e-6 * rng.standard_normal((50, 64))).astype(np.float32)
    points = drawn(3000, 64, seed=1)
    exact = squares_to(points, centroids).argmin(1)
    rounded = (points @ centroids.T - 0.5 * np.square(centroids).sum(1)).argmax(1)
    assert np.array_equal(Centroids(centroids).nearest(points), exact)
    assert (rounded != exact).mean() > 0.05
    prices = 1e-6 * rng.random(50)
    priced = (squares_to(points, centroids) + prices).argmin(1)
    assert np.array_equal(Centroids(centroids, prices).nearest(points), priced) and not np.array_equal(priced, exact)
    assert Centroids(centroids[:1]).nearest(points[:5]).tolist() == [0] * 5
    assert Centroids(centroids).nearest(points[:0]).shape == (0,)


def test_empty_clusters_get_the_farthest_points():
    points = np.array([[0, 0], [0, 1], [1, 0], [9, 9], [0, 7]], dtype=np.float32)
    # All points are nearest to the first.
    start = np.array([[0, 0], [20, 20], [20, 20], [50, 50]], dtype=np.float32)
    _, centroids = iterate(points, start, 1)
    assert np.allclose(centroids, [[0.5, 0], [9, 9], [0, 7], [0, 1]])
    sizes = tally(points, Centroids(iterate(points, start, 20)[1]), 4).sizes
    assert sizes.sum() == 5 and (sizes > 0).all()
    equal = np.ones((10, 2), dtype=np.float32)
    assert tally(equal, Centroids(lloyd(equal, 3, 5, 2, seed=0)), 3).sizes.tolist() == [10, 0, 0]


ON_A_PROCESSOR = """
import hashlib, sys, numpy as np
from hpcddm.clustering.lloyd import lloyd
from hpcddm.clustering.centroids import Centroids
rng = np.random.default_rng(0)
points = rng.standard_normal((6000, 48)).astype(np.float32)
# Differences of float32's last digits, which every kernel rounds in its own way.
centroids = (points[0] + 1e-6 * rng.standard_normal((50, 48))).astype(np.float32)
found = Centroids(centroids).nearest(points), lloyd(points, 40, 12, 1, seed=0)
print(*(hashlib.sha256(array.tobytes()).hexdigest() for array in found))
"""


def test_the_kind_of_processor_changes_no_bit():
    old = {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "OPENBLAS_CORETYPE": "Nehalem", "ATEN_CPU_CAPABILITY": "default"}
    done = [python(ON_A_PROCESSOR, timeout=300, **environment) for environment in ({}, old)]
    assert [run.returncode for run in done] == [0, 0], done
    assert done[0].stdout == done[1].stdout != ""


class FeaturesAlone(Samples):
    """Samples of which a clustering asks for nothing but features, block by block."""

    def __init__(self, features):
        self.values, self.asked = features, []

    def features(self, numbers):
        self.asked.append(len(numbers))
        return self.values[numbers]


@pytest.mark.parametrize("numbers, dtype", [(range(9000), np.float16), (np.arange(0, 9000, 2), np.float32)])
def test_features_come_in_blocks_and_give_what_they_give_at_once(tmp_path, numbers, dtype):
    features = drawn(9000, 8).astype(dtype)
    clustering = KMeans(KMeansSettings(name="kmeans", fine_clusters=20, iterations=5, restarts=2))
    samples, told = FeaturesAlone(features), []
    workspace = Workspace(tmp_path, lambda done, total: told.append((done, total)))
    streamed = clustering.fit(samples, numbers, 4, 0, workspace)
    at_once = clustering.fit_features(features[np.asarray(numbers)].astype(np.float32), 4, 0)
    assert all(np.array_equal(array, at_once.arrays()[name]) for name, array in streamed.arrays().items())
    assert max(samples.asked) <= 4096 and sum(samples.asked) == len(numbers)
    assert not list(tmp_path.iterdir())
    assert told == sorted(told) and told[-1][1] == 2 * 5 * len(numbers) and told[-1][0] <= told[-1][1]


def test_the_sample_whose_features_are_no_numbers_is_known():
    features = drawn(9000, 4)
    features[8123, 2] = np.inf
    features[8500] = np.nan
    clustering = KMeans(KMeansSettings(name="kmeans", fine_clusters=20))
    streamed = partial(clustering.fit, FeaturesAlone(features), range(9000), workspace=Workspace())
    for fit in (partial(clustering.fit_features, features), streamed):
        with pytest.raises(NotFinite, match="sample 8123 contain NaN or infinity") as error:
            fit(4, 0)
        assert error.value.place == 8123


def test_euclidean_features_keep_their_lengths():
    near, far = drawn(300, 5), 20 * drawn(300, 5, seed=1)
    features = np.concatenate([near, near + [100, 0, 0, 0, 0], far]).astype(np.float32)
    settings = KMeansSettings(name="kmeans", fine_clusters=12, iterations=20, restarts=4, metric="euclidean")
    partition = KMeans(settings).fit_features(features, 3, seed=0)
    restored = KMeans(settings).load(partition.arrays())
    clusters = restored.assign_features(features)
    assert len(set(clusters[:300])) == len(set(clusters[300:600])) == 1 and clusters[0] != clusters[300]
    squares = np.square(features - features.mean(0) - partition.centroids[:, None]).sum(2).T
    assert np.array_equal(partition.coarse[squares.argmin(1)], clusters)
    by_cosine = KMeans(settings.model_copy(update={"metric": "cosine"})).fit_features(features, 3, seed=0)
    assert not np.array_equal(by_cosine.assign_features(features), clusters)
