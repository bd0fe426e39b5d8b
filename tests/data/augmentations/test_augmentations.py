"""Random changes of real pictures, emoji of 24 pixels."""

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter

from hpcddm.config import variants
from hpcddm.config.data_variants import AugmentationSettings
from hpcddm.data.augmentations.base import create_augmentations, source_side
from hpcddm.data.batch import LabelledBatches, PixelInputs
from hpcddm.data.reader import ArrayReader
from hpcddm.randomness.keyed import RandomDraws
from tests.orders import uniform
from tests.pictures import COLUMNS, EMOJI, SIDE

COUNT, DRAWS, ORDER = 60, RandomDraws(3, "train/expert-01"), uniform(3, "train/expert-01", 60)
INDICES = range(200)
SHEET = np.asarray(Image.open(EMOJI / "sheet.png").convert("RGB"))
IMAGES = SHEET.reshape(-1, SIDE, COLUMNS, SIDE, 3).swapaxes(1, 2).reshape(-1, SIDE, SIDE, 3)[:COUNT]
READER = ArrayReader(IMAGES, np.arange(COUNT), np.zeros(COUNT, int))
EXAMPLES = {"flip": {}, "shift": {"max_pixels": 2}, "random_crop": {"min_share": 0.7}}


def settings(*values):
    return TypeAdapter(list[AugmentationSettings]).validate_python(list(values))


def read(*values, indices=INDICES, reader=READER, side=SIDE):
    inputs = PixelInputs(reader, create_augmentations(settings(*values), side))
    batches = LabelledBatches(reader, ORDER, DRAWS, inputs=inputs)
    return batches.read(indices).x0.numpy()


def test_every_augmentation_has_an_example():
    assert set(EXAMPLES) == set(variants.list_variants(AugmentationSettings.package))


@pytest.mark.parametrize("values", [*({"name": name} | keys for name, keys in EXAMPLES.items()), None], ids=str)
def test_an_image_is_a_function_of_its_index_however_the_training_is_cut(values):
    values = [values] if values else [{"name": name} | keys for name, keys in EXAMPLES.items()]
    whole = read(*values)
    assert whole.shape == (len(INDICES), SIDE, SIDE, 3) and whole.dtype == np.uint8
    pieces = [range(0, 7), range(7, 8), range(8, 120), range(120, 200)]
    assert np.array_equal(np.concatenate([read(*values, indices=piece) for piece in pieces]), whole)
    # A sample has other draws in every epoch.
    visits = [whole[ORDER.sample_numbers(INDICES) == row] for row in range(COUNT)]
    assert sum((images != images[0]).any() for images in visits) > COUNT / 2
    assert (whole != read()).any(axis=(1, 2, 3)).mean() > 0.3


@pytest.mark.parametrize("mirror", [False, True])
def test_every_image_is_shifted_and_half_are_flipped_by_their_own_draws(mirror):
    images = read({"name": "shift", "max_pixels": 2}, *[{"name": "flip"}] * mirror)
    down, right = (DRAWS.shifts(INDICES, axis, 2) for axis in ("down", "right"))
    mirrored = DRAWS.mirror_mask(INDICES) & mirror
    assert set(down.tolist()) == {-2, -1, 0, 1, 2} and 80 * mirror <= mirrored.sum() <= 120 * mirror
    for number, row in enumerate(ORDER.sample_numbers(INDICES)):
        y = np.clip(np.arange(SIDE) + down[number].item(), 0, SIDE - 1)
        x = np.clip(np.arange(SIDE) + right[number].item(), 0, SIDE - 1)
        assert np.array_equal(images[number], IMAGES[row][y][:, x[::-1] if mirrored[number] else x])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_crop_is_a_square_from_anywhere_of_at_least_the_share(channels):
    # A ramp tells where a crop was cut: its first and last values are those of its edges.
    side, ramp = 100, np.arange(100, dtype=np.uint8)
    image = np.broadcast_to(ramp[None, :, None], (side, side, channels))
    reader = ArrayReader(np.stack([image] * COUNT), np.arange(COUNT), np.zeros(COUNT, int))
    images = read({"name": "random_crop", "min_share": 0.5}, reader=reader, side=50, indices=range(500)).astype(int)
    assert images.shape == (500, 50, 50, channels)
    first, last = images[:, 0, 0, 0], images[:, 0, -1, 0]
    sides = last - first + 1
    assert 47 <= sides.min() < 55 and 95 < sides.max() <= 100 and abs(sides.mean() - 75) < 3
    left = first / np.maximum(100 - sides, 1)
    assert left[sides < 90].min() < 0.1 and left[sides < 90].max() > 0.9


def test_larger_squares_are_wanted_for_crops_alone_and_a_crop_of_all_is_the_image():
    assert np.array_equal(read({"name": "random_crop", "min_share": 1.0}), read())
    crop, flip = {"name": "random_crop", "min_share": 0.75}, {"name": "flip"}
    sides = [source_side(settings(*values), 24) for values in ([], [flip], [crop], [flip, crop])]
    assert sides == [24, 24, 32, 32]
