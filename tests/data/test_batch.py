import numpy as np
import pytest
import torch

from hpcddm.data.batch import NoisyBatches, RotatedBatches, rotate
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.randomness.keyed import RandomDraws
from tests.orders import uniform

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 4, 6, 3)).astype(np.uint8)
READER = ArrayReader(IMAGES, np.arange(20), np.arange(20) % 3)
ORDER, DRAWS = uniform(0, "s", 20), RandomDraws(0, "s")
CPU = torch.device("cpu")
NULL, SHAPE = 99, (3, 4, 6)


def noisy(dropout=0.5):
    def carried(rows, dropped):
        return torch.where(dropped, NULL, READER.labels(rows))

    return NoisyBatches(READER, ORDER, DRAWS, carried, lambda carried: -carried, dropout, SHAPE)


def test_a_batch_holds_the_samples_at_its_places_of_the_order():
    batch, rows = noisy(dropout=0).read(range(35, 43)), ORDER.sample_numbers(range(35, 43))
    assert batch.sample_indices == range(35, 43) and batch.condition.tolist() == rows.tolist()
    assert batch.clusters.tolist() == (rows % 3).tolist()
    assert batch.condition.dtype == batch.clusters.dtype == torch.int64 and batch.x0.dtype == torch.uint8
    assert torch.equal(batch.noise, DRAWS.noise(range(35, 43), (3, 4, 6)))
    assert torch.equal(batch.time, DRAWS.times(range(35, 43)))
    x0 = batch.to(CPU, pixels_to_values).x0
    assert x0.shape == (8, 3, 4, 6) and x0.dtype == torch.float32 and x0.abs().max() <= 1
    assert np.allclose(x0.numpy(), IMAGES[rows].transpose(0, 3, 1, 2) / 127.5 - 1, atol=1e-6)


def test_conditions_are_dropped_by_the_samples_own_draws():
    whole = noisy(dropout=0.5).read(range(400))
    dropped = whole.condition == NULL
    assert torch.equal(dropped, DRAWS.dropout_mask(range(400), 0.5)) and 150 < dropped.sum() < 250
    kept = noisy(dropout=0).read(range(400)).condition
    assert torch.equal(whole.condition[~dropped], kept[~dropped])


def test_what_is_carried_becomes_the_condition_on_the_device():
    batch = noisy().read(range(8))
    assert torch.equal(batch.to(CPU, pixels_to_values).condition, -batch.condition)
    whole, parts = batch.to(CPU, pixels_to_values), batch.to(CPU, pixels_to_values).split(2)
    assert torch.equal(torch.cat([part.condition for part in parts]), whole.condition)


@pytest.mark.parametrize("count", [2, 3])
def test_the_ranks_shares_and_the_parts_of_a_split_are_the_batch(count):
    whole, share = noisy().read(range(8, 20)), 12 // count
    shares = [noisy().read(range(8 + share * rank, 8 + share * (rank + 1))) for rank in range(count)]
    for parts in (shares, whole.split(count)):
        assert [part.sample_indices for part in parts] == [part.sample_indices for part in shares]
        for name in ("x0", "condition", "clusters", "noise", "time"):
            assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name)), name


def test_images_without_classes_are_turned_and_the_turn_is_their_class():
    square = ArrayReader(IMAGES[:, :, :4], np.zeros(20, int), np.zeros(20, int))
    batch, rows = RotatedBatches(square, ORDER, DRAWS).read(range(40)), ORDER.sample_numbers(range(40))
    assert set(batch.labels.tolist()) == {0, 1, 2, 3}
    for image, turn, row in zip(batch.x0.numpy(), batch.labels.tolist(), rows, strict=True):
        assert np.array_equal(image, np.rot90(IMAGES[row, :, :4], turn))
    assert torch.equal(rotate(batch.x0, -batch.labels % 4), torch.from_numpy(IMAGES[rows][:, :, :4]))
