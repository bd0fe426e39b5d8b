"""The lit-score on features whose relation is known."""

import numpy as np
import pytest
import torch

from tests.benchmarks.lit_score import Training, candidates, is_first, train

CAPTIONS, STYLES = 300, 3
QUICK = Training(epochs=30, batch=64)


def planted(seed=0):
    """Images in three styles: a linear map of their captions' features, and noise; (images, captions, texts)."""
    generator = torch.Generator().manual_seed(seed)
    texts = torch.randn(CAPTIONS, 12, generator=generator)
    captions = np.tile(np.arange(CAPTIONS), STYLES)
    relation = torch.randn(12, 40, generator=torch.Generator().manual_seed(7))
    return texts[captions] @ relation + torch.randn(len(captions), 40, generator=generator), captions, texts


def right_share(score, images, captions, texts):
    shown = candidates(captions, [number % 5 for number in range(CAPTIONS)], 32, seed=0)
    return is_first(score.scores(images, texts), shown).mean()


def test_what_was_learned_holds_for_captions_that_were_not_there_and_those_of_others_are_right_by_chance():
    score, (images, captions, texts) = train(*planted(), seed=0, training=QUICK), planted(seed=1)
    assert right_share(score, images, captions, texts) > 0.9
    shuffled = (captions + 17) % CAPTIONS
    assert abs(right_share(score, images, shuffled, texts) - 1 / 32) < 0.03


def test_candidates_are_others_half_of_them_alike():
    groups = [0] * 10 + [1] * 90
    shown = candidates(np.array([0, 50]), groups, 32, seed=3)
    assert shown.shape == (2, 32) and all(len(set(row)) == 32 for row in shown.tolist())
    assert shown[:, 0].tolist() == [0, 50]
    alike = [sum(groups[other] == groups[row[0]] for other in row[1:]) for row in shown.tolist()]
    # Of the first group there are no more than nine others; of the second one, half of 32.
    assert alike == [9, 21]
    assert np.array_equal(shown, candidates(np.array([0, 50]), groups, 32, seed=3))
    with pytest.raises(ValueError, match="10 captions, and an image is to choose among 32"):
        candidates(np.array([0]), [0] * 10, 32, seed=0)
    # An image that scores all alike has chosen nothing.
    assert not is_first(torch.zeros(3, 40), candidates(np.arange(3), [0] * 40, 32, seed=0)).any()
