import numpy as np
import pytest

from hpcddm.evaluation.metrics import all_metrics, neighbours
from tests.evaluation.metrics.sets import inputs_of
from tests.evaluation.metrics.test_equality import neighbourhoods

RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((300, 4))
KEYS = ["precision", "recall", "density", "coverage"]


def precision_recall(real, fake):
    """The four metrics that count neighbours, by key."""
    inputs = inputs_of(fake, real)
    return {metric.key: metric.compute(inputs) for metric in all_metrics() if metric.key in KEYS}


SETS = {
    "near": (REAL[:60], 1.1 * RNG.standard_normal((50, 4))),
    "narrow": (REAL[:60], 0.6 * RNG.standard_normal((70, 4)) + 0.8),
    "wide": (REAL[:60], 1.5 * RNG.standard_normal((31, 4)) + 1.5),
    "nothing in common": (REAL, REAL + 100),
    "one mode": (REAL, REAL[:1] + 0.01 * RNG.standard_normal((300, 4))),
    "noise": (REAL, np.concatenate([REAL[:150], 30 * RNG.standard_normal((150, 4))])),
    "an outlier": (np.concatenate([REAL, np.full((1, 4), 50.0)]), REAL + 25),
    "one image over and over": (REAL, REAL[:1].repeat(300, axis=0)),
    "one real image over and over": (REAL[:1].repeat(300, axis=0), REAL),
}


@pytest.mark.parametrize("name", SETS)
def test_equals_the_definition(name):
    real, fake = SETS[name]
    expected = dict(zip(KEYS, neighbourhoods(fake, real), strict=True))
    assert precision_recall(real, fake) == pytest.approx(expected, rel=1e-12)


def test_blocks_leave_no_seam(monkeypatch):
    fake = RNG.standard_normal((170, 4)) + 0.4
    expected = precision_recall(REAL, fake)
    monkeypatch.setattr(neighbours, "VALUES_PER_BLOCK", 900)
    assert precision_recall(REAL, fake) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dimension", [2, 128])
def test_a_set_is_perfect_beside_itself_in_any_order(dtype, dimension):
    points = (RNG.standard_normal((200, dimension)) + 10).astype(dtype)
    perfect = dict.fromkeys(KEYS, 1)
    assert precision_recall(points, points) == precision_recall(points, RNG.permutation(points)) == perfect


def test_needs_more_samples_than_neighbours():
    with pytest.raises(ValueError, match="5 samples"):
        precision_recall(REAL, REAL[:5])
