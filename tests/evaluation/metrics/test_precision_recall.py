import numpy as np
import pytest

from hpcddm.evaluation.metrics import all_metrics, neighbours
from tests.evaluation.metrics.sets import inputs_of

RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((300, 4))

KEYS = ("precision", "recall", "density", "coverage")


def precision_recall(real, fake):
    """The four metrics that count neighbours, by key."""
    inputs = inputs_of(fake, real)
    return {metric.key: metric.compute(inputs) for metric in all_metrics() if metric.key in KEYS}


def direct(real, fake):
    """The papers' formulas, one pair at a time."""

    def distance(a, b):
        return np.sqrt(np.square(a - b).sum())

    def radius(points, place, k):
        return sorted(distance(points[place], other) for i, other in enumerate(points) if i != place)[k - 1]

    balls, wide, own = ([radius(points, i, k) for i in range(len(points))] for points, k in
                        ((real, 3), (real, 5), (fake, 3)))  # fmt: skip
    pairs = [[distance(r, f) for f in fake] for r in real]
    within = [[value < wide[i] for value in row] for i, row in enumerate(pairs)]
    return {
        "precision": np.mean([any(pairs[i][j] <= balls[i] for i in range(len(real))) for j in range(len(fake))]),
        "recall": np.mean([any(pairs[i][j] <= own[j] for j in range(len(fake))) for i in range(len(real))]),
        "density": np.sum(within) / (5 * len(fake)),
        "coverage": np.mean([any(row) for row in within]),
    }


@pytest.mark.parametrize("shift, scale, count", [(0, 1.1, 50), (0.8, 0.6, 70), (1.5, 1.5, 31)])
def test_equals_the_definition(shift, scale, count):
    real, fake = REAL[:60], np.random.default_rng(count).standard_normal((count, 4)) * scale + shift
    found = precision_recall(real, fake)
    assert found == pytest.approx(direct(real, fake), rel=1e-12)
    assert 0 < min(found.values()) and max(found.values()) < 1.2 and found["precision"] < 1


def test_blocks_leave_no_seam(monkeypatch):
    fake = RNG.standard_normal((170, 4)) + 0.4
    expected = precision_recall(REAL, fake)
    monkeypatch.setattr(neighbours, "VALUES_PER_BLOCK", 900)
    assert precision_recall(REAL, fake) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dimension", [2, 128])
def test_a_set_is_perfect_beside_itself_in_any_order(dtype, dimension):
    points = (RNG.standard_normal((200, dimension)) + 10).astype(dtype)
    perfect = {"precision": 1, "recall": 1, "density": 1, "coverage": 1}
    assert precision_recall(points, points) == perfect
    assert precision_recall(points, RNG.permutation(points)) == perfect


def test_sets_far_apart_have_nothing_in_common():
    assert set(precision_recall(REAL, REAL + 100).values()) == {0}


def test_collapse_lowers_what_is_reached_and_not_how_real_it_is():
    one_mode = REAL[:1] + 0.01 * RNG.standard_normal((300, 4))
    found = precision_recall(REAL, one_mode)
    assert found["precision"] == 1
    assert found["recall"] < 0.02 and found["coverage"] < 0.1


def test_noise_lowers_precision_and_an_outlier_lowers_density_no_more_than_its_share():
    noisy = np.concatenate([REAL[:150], RNG.standard_normal((150, 4)) * 30])
    assert precision_recall(REAL, noisy)["precision"] < 0.55
    # One real outlier makes a fake's life easy in precision: its ball is huge. Density counts one ball of many.
    real = np.concatenate([REAL, np.full((1, 4), 50.0)])
    found = precision_recall(real, REAL + 25)
    assert found["precision"] > 0.9 and found["density"] < 0.25


def test_the_same_image_over_and_over_is_a_number_and_no_error():
    found = precision_recall(REAL, np.repeat(REAL[:1], 300, axis=0))
    assert found["precision"] == 1 and found["recall"] == 1 / 300
    assert precision_recall(np.repeat(REAL[:1], 300, axis=0), REAL)["coverage"] == 0


def test_needs_more_samples_than_neighbours():
    with pytest.raises(ValueError, match="5 samples"):
        precision_recall(REAL, REAL[:5])
