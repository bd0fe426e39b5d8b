import numpy as np
import pytest

from hpcddm.evaluation.metrics.fd import frechet_distance
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from tests.evaluation.metrics.test_equality import frechet

RNG = np.random.default_rng(0)
MIX = RNG.standard_normal((24, 24)) / 5
REAL = RNG.standard_normal((900, 24))
FAKE = RNG.standard_normal((1100, 24)) @ MIX + 0.3


def distance(real, fake):
    return frechet_distance(FeatureStatistics.from_features(real), FeatureStatistics.from_features(fake))


def test_equals_the_definition():
    assert distance(REAL, FAKE) == pytest.approx(frechet(REAL, FAKE), rel=1e-8)


def test_a_set_is_at_distance_zero_from_itself():
    assert distance(FAKE, FAKE) == pytest.approx(0, abs=1e-10)


def test_singular_covariances():
    flat = REAL * (np.arange(24) < 10)
    with pytest.warns(UserWarning, match="24 features that span 10 dimensions only"):
        found = distance(flat, 2 * flat)
    assert found == pytest.approx(np.trace(np.cov(flat.T)) + np.square(flat.mean(0)).sum(), rel=1e-9)


def test_warns_when_samples_are_too_few():
    with pytest.warns(UserWarning, match="24 features from 47 samples"):
        distance(REAL[:47], FAKE)
    with pytest.raises(ValueError, match="at least 2"):
        distance(REAL[:1], FAKE)
