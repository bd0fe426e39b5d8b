import tracemalloc

import numpy as np
import pytest

from hpcddm.errors import UserError
from hpcddm.evaluation.concepts.taggers import thresholds
from hpcddm.evaluation.concepts.taggers.thresholds import ScoreCounts

RNG = np.random.default_rng(0)


def f1(scores, mentions, threshold):
    shown = scores >= threshold
    return 2 * (shown & mentions).sum() / (shown.sum() + mentions.sum())


def counted(scores, mentions, parts=1):
    counts = ScoreCounts(scores.shape[1])
    for rows in np.array_split(np.arange(len(scores)), parts):
        counts.add(scores[rows], mentions[rows])
    return counts.thresholds()


def test_each_concept_has_the_best_f1_of_all_thresholds(monkeypatch):
    monkeypatch.setattr(thresholds, "PRIOR", 0)
    mentions = RNG.random((800, 3)) < [0.5, 0.1, 0.02]
    scores = np.clip(0.2 * RNG.standard_normal(mentions.shape) + 0.3 * mentions, -1, 1).astype(np.float32)
    chosen = counted(scores, mentions, parts=7)
    for concept in range(3):
        own = scores[:, concept], mentions[:, concept]
        best = max(f1(*own, threshold) for threshold in np.linspace(-1, 1, 2001))
        assert f1(*own, chosen[concept]) == pytest.approx(best, abs=0.01)


def test_between_scores_that_are_told_apart_it_is_the_middle():
    scores = np.array([[0.1], [0.2], [0.6], [0.7]], np.float32)
    assert counted(scores, scores > 0.5) == pytest.approx([0.4], abs=0.002)


def test_a_concept_that_scores_do_not_tell_is_not_shown_everywhere():
    mentions = np.zeros((1000, 6), bool)
    mentions[:100, :5], mentions[:8, 5] = True, True
    scores = (0.05 * RNG.standard_normal(mentions.shape) + 0.5 * mentions).astype(np.float32)
    scores[:, 5] = 0.05 * RNG.standard_normal(1000)
    scores[:8, 5] -= 0.3
    chosen = counted(scores, mentions)
    assert chosen[5] == pytest.approx(chosen[:5].mean(), abs=0.15) and (scores[:, 5] >= chosen[5]).mean() < 0.01


def test_concepts_are_gone_over_in_parts(monkeypatch):
    mentions = RNG.random((300, 11)) < 0.1
    scores = np.clip(0.3 * RNG.standard_normal(mentions.shape) + 0.2 * mentions, -1, 1).astype(np.float32)
    whole = counted(scores, mentions)
    monkeypatch.setattr(thresholds, "CONCEPTS_AT_ONCE", 4)
    assert np.array_equal(counted(scores, mentions, parts=3), whole)

    # Counts of all concepts together, in 64 bits.
    bins = np.clip((scores + 1) * 1000, 0, 1999).astype(np.int64)
    every, right = np.zeros((2, 11, 2000), np.int64)
    for concept in range(11):
        np.add.at(every[concept], bins[:, concept], 1)
        np.add.at(right[concept], bins[mentions[:, concept], concept], 1)
    lent = thresholds.PRIOR / right.sum()
    expected = thresholds.best(every + lent * every.sum(0), right + lent * right.sum(0)).astype(np.float32)
    assert np.array_equal(whole, expected)


def test_memory_is_that_of_one_count_per_bin(monkeypatch):
    monkeypatch.setattr(thresholds, "CONCEPTS_AT_ONCE", 100)
    scores = RNG.uniform(-1, 1, (64, 3000)).astype(np.float32)
    tracemalloc.start()
    counted(scores, scores > 0.99)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.6 * 4 * thresholds.BINS * scores.shape[1]


def test_without_a_mention_there_is_no_threshold():
    with pytest.raises(UserError, match="no caption that was read mentions a concept"):
        counted(np.zeros((5, 2), np.float32), np.zeros((5, 2), bool))
