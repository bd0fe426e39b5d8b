import numpy as np
import pytest

from hpcddm.evaluation.concepts.caption_overlap import CaptionOverlap
from hpcddm.evaluation.concepts.curves import fit_curve
from hpcddm.evaluation.concepts.home_share import home_against_total
from hpcddm.evaluation.statistics.jackknife import LeastSquares, Moments, mean
from hpcddm.evaluation.statistics.shared_errors import effective_number

CONCEPTS, NAMES = 48, ("mean", "slope", "line")


def shared_captions(rng: np.random.Generator) -> list[list[int]]:
    """Captions of concepts, three in each of sixteen topics, whose concepts share most of theirs."""
    return [[*rng.integers(12 * (concept // 3), 12 * (concept // 3) + 12, 10)] for concept in range(CONCEPTS)]


def one_caption_in_common(share: float) -> list[list[int]]:
    """Captions of concepts, all of which have one in common: the cosine of every two is the share."""
    of_all = round(100 * np.sqrt(share / (1 - share)))
    return [[0] * of_all + [concept + 1] * 100 for concept in range(CONCEPTS)]


def test_the_matrix_holds_cosines_of_the_captions():
    overlap = CaptionOverlap.of([("a", ["x", "x", "y"]), ("b", ["y"]), ("c", ["z"]), ("b", ["y"])])
    expected = [[1, 1 / np.sqrt(5), 0], [1 / np.sqrt(5), 1, 0], [0, 0, 1]]
    np.testing.assert_allclose(overlap.matrix(["a", "b", "c"]), expected)
    np.testing.assert_allclose(overlap.matrix(["b", "missing", "a"])[0], [1, 0, 1 / np.sqrt(5)])
    assert overlap.matrix(["a", "c"]) is None
    assert CaptionOverlap().matrix(np.arange(3)) is None


def test_concepts_with_the_same_captions_are_one_and_pairs_of_equal_ones_say_what_half_of_them_say():
    """The mean over pairs of equal values has the interval of the t test over one of each."""
    values = np.random.default_rng(0).random(7)
    pairs = CaptionOverlap.of((concept, [concept // 2]) for concept in range(14)).matrix(range(14))
    both, alone = mean(np.repeat(values, 2), pairs), mean(values)
    assert (both.low, both.high) == pytest.approx((alone.low, alone.high))
    same = CaptionOverlap.of((concept, ["x", "y"]) for concept in range(8)).matrix(range(8))
    assert mean(np.arange(8.0), same).low is None


def test_a_little_overlap_leaves_two_concepts_their_interval():
    cosines = np.array([[1, 0.01], [0.01, 1]])
    shared, alone = mean(np.array([0.1, 0.3]), cosines), mean(np.array([0.1, 0.3]))
    assert shared.low == pytest.approx(alone.low, rel=0.03) and shared.low < alone.low


@pytest.mark.parametrize(
    "captions, as_if_independent",
    [
        # Topics decide the predictor, too: mean and slope are too short without the overlap.
        (shared_captions(np.random.default_rng(0)), {"mean": 0.85, "slope": 0.85, "line": 0.9}),
        # What all have in common moves all outcomes alike: no slope, but mean and line.
        (one_caption_in_common(0.1), {"mean": 0.7, "line": 0.7}),
    ],
    ids=["topics", "all alike"],
)
def test_intervals_of_concepts_that_share_captions_hold_the_truth(captions, as_if_independent):
    """Errors are of captions; 95 % intervals of 300 sets hold the truth, and those without the overlap do not."""
    rng = np.random.default_rng(0)
    cosines = CaptionOverlap.of(enumerate(captions)).matrix(range(CONCEPTS))
    logs = np.repeat(rng.uniform(0, 3, CONCEPTS // 3), 3)
    place = logs.mean()
    numbers = {name: number for number, name in enumerate({name for own in captions for name in own})}
    held = {(name, known): 0 for name in NAMES for known in (True, False)}
    for _ in range(300):
        errors = rng.standard_normal(len(numbers))
        counts = [np.unique([numbers[name] for name in own], return_counts=True) for own in captions]
        scores = np.array([errors[own] @ count / np.linalg.norm(count) for own, count in counts])
        moments = Moments.of(np.column_stack([scores, logs]))
        slopes = moments.slopes(0, [1])[:, 0]
        line = moments.means[:, 0] + slopes * (place - moments.means[:, 1])
        for known in (True, False):
            fit = LeastSquares.on(scores, logs, cosines=cosines if known else None)
            estimates = mean(scores, fit.cosines), fit.interval(slopes, [0, 1]), fit.interval(line, [1, place])
            for name, estimate in zip(NAMES, estimates, strict=True):
                held[name, known] += estimate.low <= 0 <= estimate.high
    assert all(held[name, True] >= 0.91 * 300 for name in NAMES), held
    assert all(held[name, False] < most * 300 for name, most in as_if_independent.items()), held


def test_fits_take_the_overlap_of_the_concepts_that_have_a_score():
    rng = np.random.default_rng(1)
    overlap = CaptionOverlap.of((f"c{concept}", own) for concept, own in enumerate(shared_captions(rng)))
    names = np.array([f"c{concept}" for concept in range(CONCEPTS)])[rng.permutation(CONCEPTS)]
    total = np.round(10 ** rng.uniform(1, 3, CONCEPTS))
    home = np.round(total * rng.uniform(0.2, 1, CONCEPTS))
    scores = np.where(rng.random(CONCEPTS) < 0.2, np.nan, rng.random(CONCEPTS))
    kept = np.isfinite(scores)
    curve, alone = fit_curve(total, scores, names, overlap=overlap), fit_curve(total, scores, names)
    own = overlap.matrix(np.sort(names[kept]))
    assert curve.effective_concepts == pytest.approx(effective_number(own, int(kept.sum())))
    assert alone.effective_concepts == kept.sum() > curve.effective_concepts
    assert curve.fit.slope.value == alone.fit.slope.value
    assert curve.fit.slope.high - curve.fit.slope.low >= alone.fit.slope.high - alone.fit.slope.low
    assert sum(entry.unscored for entry in curve.bins) == (~kept).sum()
    against = [home_against_total(scores, total, home, names, overlap=known) for known in (overlap, CaptionOverlap())]
    wide, narrow = (result.comparison.home_given_total for result in against)
    assert wide.value == narrow.value and wide.high - wide.low > narrow.high - narrow.low


def test_a_half_decade_without_a_score_is_shown():
    curve = fit_curve(np.array([1, 2, 40, 200.0]), np.array([0.1, 0.2, np.nan, 0.3]), np.arange(4))
    found = [(entry.concepts, entry.unscored, entry.score is None) for entry in curve.bins]
    assert found == [(2, 0, False), (0, 1, True), (1, 0, False)]
