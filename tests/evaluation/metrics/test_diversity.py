import numpy as np
import pytest

from hpcddm.evaluation.metrics import neighbours
from hpcddm.evaluation.metrics.class_distances import class_distances

RNG = np.random.default_rng(0)
FEATURES, LABELS = RNG.standard_normal((60, 5)), np.arange(60) % 4


def diversity(features, labels):
    return class_distances(features, labels)[0]


def test_equals_the_definition_whatever_the_blocks(monkeypatch):
    means = []
    for label in range(4):
        own = FEATURES[LABELS == label]
        pairs = [np.linalg.norm(a - b) for i, a in enumerate(own) for j, b in enumerate(own) if i != j]
        means.append(np.mean(pairs))
    assert diversity(FEATURES, LABELS) == pytest.approx(np.mean(means), rel=1e-10)
    monkeypatch.setattr(neighbours, "VALUES_PER_BLOCK", 40)
    assert diversity(FEATURES, LABELS) == pytest.approx(np.mean(means), rel=1e-10)


def test_a_class_with_one_sample_does_not_count():
    several = LABELS[:7] != 3
    assert diversity(FEATURES[:7], LABELS[:7]) == diversity(FEATURES[:7][several], LABELS[:7][several])
    assert np.isnan(diversity(FEATURES[:3], np.arange(3)))


def test_a_class_that_loses_its_pairs_with_a_tenth_does_not_count():
    labels = np.array([0, *([1] * 9), *([2] * 9), 0])
    found = class_distances(FEATURES[:20], labels)
    rest = np.arange(2, 20)
    left = [class_distances(FEATURES[rest][labels[rest] == label], np.zeros(n))[0] for label, n in ((1, 8), (2, 9))]
    assert found[1] == pytest.approx(np.mean(left), rel=1e-12) and np.isfinite(found).all()
    assert np.isnan(class_distances(FEATURES[:10], np.arange(10) // 2 * 0 + np.arange(10) // 5)[1:]).sum() == 0
