"""Values and those without each tenth against the definitions, written as plainly as possible."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg

from hpcddm.evaluation.metrics import all_metrics, fd_infinity, kid, kid_subsets, metric_inputs, overlap
from hpcddm.evaluation.metrics.metric_inputs import ImageSet, MetricInputs
from tests.evaluation.metrics.sets import image_set, inputs_of

METRICS = {metric.key: metric for metric in all_metrics()}
RNG = np.random.default_rng(0)
MIX = RNG.standard_normal((24, 24)) / 5 + np.eye(24)
SAMPLES, REAL, TRAIN = (RNG.standard_normal((253, 24)) @ matrix + 0.2 for matrix in (MIX, np.eye(24), np.eye(24)))
INPUTS = inputs_of(SAMPLES, REAL, TRAIN)


def without(values, tenth):
    """Values without the rows of a tenth; all of them for None."""
    count = len(values)
    return values if tenth is None else np.delete(values, range(count * tenth // 10, count * (tenth + 1) // 10), axis=0)


def in_all_cases(definition, *sets):
    """A definition's values of all images, then without each tenth."""
    return [definition(*(without(values, tenth) for values in sets)) for tenth in (None, *range(10))]


def found(key, inputs=INPUTS):
    return [METRICS[key].compute(inputs), *METRICS[key].left_out(inputs)]


def assert_equal(values, expected):
    np.testing.assert_allclose(values, expected, rtol=1e-8)


def frechet(first, second):
    one, two = np.cov(first.T), np.cov(second.T)
    root = scipy.linalg.sqrtm(one @ two).real
    return np.square(first.mean(0) - second.mean(0)).sum() + np.trace(one + two - 2 * root)


def test_frechet_distances():
    distances, floors = in_all_cases(frechet, SAMPLES, REAL), in_all_cases(frechet, TRAIN, REAL)
    assert_equal(found("fd"), distances)
    assert_equal(found("fd_ratio"), np.divide(distances, floors))


def test_the_extrapolated_frechet_distance():
    rows, sizes = np.random.default_rng(fd_infinity.SEED).permutation(253), np.linspace(126, 253, 15).astype(int)

    def extrapolated(tenth):
        out = [] if tenth is None else range(253 * tenth // 10, 253 * (tenth + 1) // 10)
        chosen = [[row for row in rows[:size] if row not in out] for size in sizes]
        values = [frechet(SAMPLES[own], REAL[own]) for own in chosen]
        design = np.array([[1, 1 / len(own)] for own in chosen])
        return np.linalg.solve(design.T @ design, design.T @ values)[0]

    assert_equal(found("fd_infinity"), [extrapolated(tenth) for tenth in (None, *range(10))])


def kernel_distance(first, second):
    def kernel(a, b):
        return (a @ b.T / a.shape[1] + 1) ** 3

    off = [kernel(values, values)[~np.eye(len(values), dtype=bool)].mean() for values in (first, second)]
    return sum(off) - 2 * kernel(first, second).mean()


def test_kernel_distances(monkeypatch):
    assert_equal(found("kid"), in_all_cases(kernel_distance, SAMPLES, REAL))
    # Every subset is the whole set.
    monkeypatch.setattr(kid_subsets, "SIZE", 253)
    monkeypatch.setattr(kid_subsets, "SUBSETS", 2)
    whole = found("kid_subsets", inputs_of(SAMPLES, REAL))
    np.testing.assert_allclose(whole, in_all_cases(kernel_distance, SAMPLES, REAL), rtol=0, atol=1e-9)


def test_subsets_lose_the_rows_of_a_tenth(monkeypatch):
    monkeypatch.setattr(kid_subsets, "SIZE", 100)
    rng, expected = np.random.default_rng(kid_subsets.SEED), []
    for _ in range(100):
        own, theirs = (np.sort(rng.choice(253, 100, replace=False)) for _ in range(2))
        cases = [[], *(range(253 * tenth // 10, 253 * (tenth + 1) // 10) for tenth in range(10))]
        kept = [[rows[~np.isin(rows, out)] for rows in (own, theirs)] for out in cases]
        expected.append([kernel_distance(SAMPLES[first], REAL[second]) for first, second in kept])
    assert_equal(found("kid_subsets", inputs_of(SAMPLES, REAL)), np.mean(expected, axis=0))


def test_many_images_are_compared_within_their_tenths(monkeypatch):
    monkeypatch.setattr(kid, "WHOLE", 252)
    tenths = [slice(253 * tenth // 10, 253 * (tenth + 1) // 10) for tenth in range(10)]
    values = [kernel_distance(SAMPLES[rows], REAL[rows]) for rows in tenths]
    assert_equal(found("kid", inputs_of(SAMPLES, REAL)), in_all_cases(np.mean, np.array(values)))


def distances(first, second):
    return np.sqrt(np.square(first[:, None] - second[None]).sum(2))


def neighbourhoods(samples, real):
    """Precision, recall, density, coverage."""
    between = distances(samples, real)
    (three, five), (own, _) = (np.sort(distances(values, values))[:, [3, 5]].T for values in (real, samples))
    inside, reached, within = between <= three, between <= own[:, None], between < five
    return inside.any(1).mean(), reached.any(0).mean(), within.sum(1).mean() / 5, within.any(0).mean()


@pytest.mark.parametrize("place, key", enumerate(["precision", "recall", "density", "coverage"]))
def test_neighbourhoods(place, key, monkeypatch):
    assert_equal(found(key), [values[place] for values in in_all_cases(neighbourhoods, SAMPLES, REAL)])
    assert 0.1 < found(key)[0] < 2
    monkeypatch.setattr(metric_inputs, "NEIGHBOUR_IMAGES", 120)
    few = [values[place] for values in in_all_cases(neighbourhoods, SAMPLES[:120], REAL[:120])]
    assert_equal(found(key, inputs_of(SAMPLES, REAL)), few)


@pytest.mark.parametrize("edges", [(0, 253), (0, 100, 101, 253)], ids=["at once", "in ranges"])
def test_neighbourhoods_of_all_images_are_found_in_ranges(edges, monkeypatch):
    monkeypatch.setattr(overlap, "NEIGHBOUR_IMAGES", 120)
    balls = [overlap.RealBalls.around(REAL, slice(*ends)) for ends in pairwise(edges)]
    merged = overlap.merge([own.overlap(SAMPLES) for own in balls])
    expected = np.array(in_all_cases(neighbourhoods, SAMPLES, REAL)).T
    assert_equal([merged.precision, merged.recall, merged.density, merged.coverage], expected)
    few_real = np.array(in_all_cases(neighbourhoods, SAMPLES, REAL[:120])).T
    inputs = MetricInputs(*map(image_set, (SAMPLES, REAL, TRAIN)), merged_overlap=merged)
    for place, key in enumerate(("adm_precision", "adm_recall")):
        assert_equal(found(key, inputs), few_real[place])
        assert found(key, inputs_of(SAMPLES, REAL)) == found(key, inputs)


def authentic(samples, train):
    own = distances(train, train) + np.diag(np.full(len(train), np.inf))
    between = distances(samples, train)
    return np.mean([row.min() > own[row.argmin()].min() for row in between])


def test_authenticity():
    near = np.concatenate([SAMPLES[:100], TRAIN[:153] + 0.001])
    assert_equal(found("auth_pct", inputs_of(near, REAL, TRAIN)), in_all_cases(authentic, near, TRAIN))
    assert METRICS["auth_pct"].compute(inputs_of(TRAIN, REAL, TRAIN)) == 0


def test_sorted_projections():
    directions = np.random.default_rng(0).standard_normal((1000, 24))

    def definition(samples, real):
        lines = [direction / np.linalg.norm(direction) for direction in directions]
        return 3 * 24 * np.mean([np.square(np.sort(samples @ line) - np.sort(real @ line)).mean() for line in lines])

    assert_equal(found("mind"), in_all_cases(definition, SAMPLES, REAL))


def test_inception_score():
    logits = 3 * RNG.standard_normal((253, 7))
    scores = []
    for tenth in range(10):
        shares = [np.exp(row) / np.exp(row).sum() for row in logits[253 * tenth // 10 : 253 * (tenth + 1) // 10]]
        overall = np.mean(shares, axis=0)
        scores.append(np.exp(np.mean([(row * np.log(row / overall)).sum() for row in shares])))
    given = ImageSet(logits=logits)
    values = found("inception_score", MetricInputs(given, given, given))
    assert_equal(values, in_all_cases(np.mean, np.array(scores)))


def test_subsets_of_few_images_share_their_pairs(monkeypatch):
    """The kernel of every pair is computed once where that is less work, and no figure changes."""
    monkeypatch.setattr(kid_subsets, "SUBSETS", 4)
    draw = np.random.default_rng(3)
    sets = [draw.standard_normal((count, 5)) + shift for count, shift in ((90, 0.0), (120, 0.3))]
    subsets = [tuple(draw.choice(len(each), 60, replace=False) for each in sets) for _ in range(4)]
    together = list(kid_subsets._sums_of_all_pairs(*sets, subsets))
    alone = [kid_subsets._sums(*sets, *chosen) for chosen in subsets]
    for without in (None, 0, 7):
        distances = [[one.distance(without) for one in sums] for sums in (together, alone)]
        np.testing.assert_allclose(*distances, rtol=0, atol=1e-13)
