import pytest
import torch

from hpcddm.training.ema import RAMP, Ema, update_weight
from tests.training.scenarios import BATCH, training


def test_what_was_average_weighs_half_after_a_half_life():
    settings = training(ema_halflife_images=10 * BATCH)
    average = Ema([torch.ones(3)])
    for _ in range(10):
        average.update([torch.zeros(3)], update_weight(10**9, settings))
    assert average.shards[0].tolist() == pytest.approx([0.5] * 3)


def test_early_on_the_half_life_is_a_share_of_the_images_seen():
    settings = training(ema_halflife_images=10**6)
    assert update_weight(100 * BATCH, settings) == pytest.approx(1 - 0.5 ** (BATCH / (RAMP * 100 * BATCH)))
    assert update_weight(BATCH, settings) == 1 - 0.5**10 > update_weight(2 * BATCH, settings)
    assert update_weight(10**7, settings) == update_weight(10**9, settings)


def test_a_half_life_of_next_to_nothing_takes_the_newest_weights():
    average = Ema([torch.ones(3, dtype=torch.float32)])
    average.update([torch.tensor([1.0, 2.0, 3.0])], update_weight(10**9, training(batch=2**12, ema_halflife_images=1)))
    assert average.shards[0].tolist() == [1.0, 2.0, 3.0]


def test_the_average_is_a_copy():
    masters = [torch.arange(4.0), torch.ones(2)]
    average = Ema(masters)
    masters[0].zero_()
    assert [shard.tolist() for shard in average.shards] == [[0.0, 1.0, 2.0, 3.0], [1.0, 1.0]]
