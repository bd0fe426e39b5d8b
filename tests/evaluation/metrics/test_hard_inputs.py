"""Inputs that break naive formulas: every metric is finite there, and says where it means little."""

import contextlib
import warnings

import numpy as np
import pytest

from hpcddm.evaluation.metrics import all_metrics, fd, kid_subsets, metrics_for, ratios
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.statistics.tenths import interval
from tests.evaluation.metrics.sets import inputs_of
from tests.evaluation.metrics.test_equality import frechet

METRICS = {metric.key: metric for metric in all_metrics()}
MAY_BE_NEGATIVE = {"kid", "kid_subsets", "fd_infinity", "image_text"}
RNG = np.random.default_rng(0)


def normal(count, dimension):
    return RNG.standard_normal((3, count, dimension))


def constant_feature(count, dimension):
    features = normal(count, dimension)
    features[:, :, 1] = 7
    return features


SETS = {
    "fewer images than features": normal(40, 64),
    "far below full rank": normal(1000, 8) @ RNG.standard_normal((8, 64)),
    "all images equal": np.ones((3, 1000, 8)),
    "samples equal": np.stack([np.ones((1000, 8)), *normal(1000, 8)[:2]]),
    "real images equal": np.stack([normal(1000, 8)[0], *np.ones((2, 1000, 8))]),
    "a constant feature": constant_feature(1000, 8),
    "few distinct images": normal(20, 8)[:, RNG.integers(0, 20, 1000)],
    "huge": 1e6 * normal(1000, 8),
    "tiny": 1e-6 * normal(1000, 8),
    "float32 far from zero": (normal(1000, 8) + 1000).astype(np.float32),
}


@pytest.mark.parametrize("name", SETS)
def test_every_metric_is_finite(name, monkeypatch):
    monkeypatch.setattr(kid_subsets, "SUBSETS", 2)
    inputs = inputs_of(*SETS[name])
    for metric in metrics_for(inputs.samples.gives(), inputs.samples.count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value, left_out = metric.compute(inputs), metric.left_out(inputs)
        assert isinstance(value, float) and np.isfinite([value, *left_out]).all(), metric.key
        assert value >= 0 and left_out.min() >= 0 or metric.key in MAY_BE_NEGATIVE, metric.key
        assert np.isfinite(interval(value, left_out).low)


SAYS = {
    "fewer images than features": "64 features from 40 samples: use at least 128, or the kernel",
    "far below full rank": "features that span 8 dimensions only",
    "all images equal": "features that span 0 dimensions only",
    "samples equal": "features that span 0 dimensions only",
    "real images equal": "features that span 0 dimensions only",
    "a constant feature": "features that span 7 dimensions only",
}


@pytest.mark.parametrize("name", SETS)
def test_a_frechet_distance_that_means_little_says_so(name):
    with pytest.warns(UserWarning, match=SAYS[name]) if name in SAYS else contextlib.nullcontext():
        METRICS["fd"].compute(inputs_of(*SETS[name]))


@pytest.mark.parametrize("count, dimension", [(40, 64), (64, 64), (65, 64), (400, 1280)])
def test_factors_of_features_and_of_covariances_agree_where_a_covariance_is_singular(count, dimension):
    first, second = normal(count, dimension)[:2] + [[[0.1]], [[0]]]
    with pytest.warns(UserWarning, match="use at least"):
        thin = METRICS["fd"].compute(inputs_of(first, second))
    with pytest.warns(UserWarning, match="use at least"):
        whole = fd.frechet_distance(*map(FeatureStatistics.from_features, (first, second)))
    assert thin == pytest.approx(whole, rel=1e-6)
    if dimension < 100:
        assert thin == pytest.approx(frechet(first, second), rel=1e-4)


def test_float32_features_far_from_zero_lose_no_digits():
    near = normal(1000, 8).astype(np.float32).round(3) + np.float32([[[0.25]], [[0]], [[0]]])
    far = (near * 1024).round() / 1024 + np.float32(4096)
    for key in ("fd", "mind", "precision", "coverage", "auth_pct", "diversity"):
        expected = METRICS[key].compute(inputs_of(*(far.astype(np.float64) - 4096)))
        assert METRICS[key].compute(inputs_of(*far)) == pytest.approx(expected, rel=1e-9)


def test_ratios_to_zero_are_one_or_capped():
    with pytest.warns(UserWarning, match="a distance of real images is zero"):
        assert ratios.ratio(0, 0) == 1 and ratios.ratio(1e-13, 1e-14, scale=1) == 1
    with pytest.warns(UserWarning, match="a distance of real images is zero"):
        assert ratios.ratio(0.1, 0) == ratios.LARGEST
    assert ratios.ratio(1, 1e-9) == ratios.LARGEST and ratios.ratio(0.3, 0.2) == pytest.approx(1.5)
    assert np.isnan(ratios.ratio(np.nan, 1))
