from functools import reduce

import numpy as np
import pytest

from hpcddm.evaluation.metrics import feature_statistics
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics

# A mean far from zero is where sums of raw second moments lose their digits.
FEATURES = np.random.default_rng(0).standard_normal((500, 6)) * [1, 2, 3, 0.1, 1, 1] + [0, 1e4, -50, 0, 3, 1]


def assert_equal(statistics, features=FEATURES):
    assert statistics.count == len(features)
    np.testing.assert_allclose(statistics.mean, features.mean(0), rtol=1e-12)
    np.testing.assert_allclose(statistics.covariance(), np.cov(features.T), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_any_partition_in_any_order_is_one_pass(seed):
    rng = np.random.default_rng(seed)
    shuffled, cuts = FEATURES[rng.permutation(500)], rng.integers(0, 501, 12)
    # Repeated cuts make empty pieces, neighbouring ones pieces of one sample.
    pieces = np.split(shuffled, np.sort([*cuts, *cuts[:3], 7, 8]))
    assert_equal(reduce(FeatureStatistics.merge, map(FeatureStatistics.from_features, pieces)))


def test_float32_features_are_summed_in_float64():
    features = FEATURES.astype(np.float32)
    assert_equal(FeatureStatistics.from_features(features), features.astype(np.float64))


@pytest.mark.parametrize("rows", [1, 7, 499, 500])
def test_blocks_and_unions_of_any_size_are_one_pass(rows, monkeypatch):
    whole = FeatureStatistics.from_features(FEATURES)
    assert_equal(whole)
    parts = [FeatureStatistics.from_features(FEATURES[start : start + rows]) for start in range(0, 500, rows)]
    monkeypatch.setattr(feature_statistics, "ROWS_PER_BLOCK", rows)
    scale = np.sqrt(np.outer(*[np.diag(whole.scatter)] * 2))
    merged = FeatureStatistics.union(parts), reduce(FeatureStatistics.merge, parts)
    for other in (FeatureStatistics.from_features(FEATURES), *merged):
        np.testing.assert_allclose(other.mean, whole.mean, rtol=1e-12, atol=1e-12)
        assert (np.abs(other.scatter - whole.scatter) / scale).max() < 1e-12 and other.count == 500
