"""ADM's centre crop, bit for bit: published figures on ImageNet are of images that were cropped like this."""

import io

import numpy as np
import pytest
from PIL import Image

from hpcddm.config.data_variants import TransformSettings
from hpcddm.config.variants import create
from hpcddm.data.image_decoding import decode
from hpcddm.data.transforms.base import Transform

PICTURES, SIDES = 200, (16, 32, 64)
ADM = create(Transform, TransformSettings.model_validate({"name": "adm_centre_crop"}))


def published(picture: Image.Image, side: int) -> np.ndarray:
    """Crop a picture as ADM's code does, with numpy where ours has Pillow: (side, side) or (side, side, 3)."""
    while True:
        shorter = min(picture.size)
        if shorter < 2 * side:
            break
        picture = picture.resize([length // 2 for length in picture.size], resample=Image.Resampling.BOX)
    factor = side / shorter
    resized = picture.resize([round(length * factor) for length in picture.size], resample=Image.Resampling.BICUBIC)
    pixels = np.array(resized)
    top, left = (pixels.shape[0] - side) // 2, (pixels.shape[1] - side) // 2
    return pixels[top : top + side, left : left + side]


def pictures(mode: str) -> list[Image.Image]:
    """Pictures of odd sizes, smaller and larger than what they are cropped to."""
    random, bands = np.random.default_rng(0), {"L": (), "RGB": (3,)}[mode]
    sizes = random.integers(9, 300, (PICTURES, 2))
    return [Image.fromarray(random.integers(0, 256, (*size, *bands), dtype=np.uint8), mode) for size in sizes]


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_equals_the_published_crop(mode):
    for number, picture in enumerate(pictures(mode)):
        side = SIDES[number % len(SIDES)]
        assert np.array_equal(np.asarray(ADM.fit(picture, side)), published(picture, side)), picture.size


def test_a_grey_picture_is_that_of_three_equal_channels():
    for picture in pictures("L")[:20]:
        coloured = np.asarray(ADM.fit(picture.convert("RGB"), 32))
        assert (coloured == np.asarray(ADM.fit(picture, 32))[..., None]).all()


def test_what_fits_is_left_as_it_is():
    picture = pictures("RGB")[0].resize((32, 32))
    assert ADM.fit(picture, 32) is picture


def test_transparent_pixels_are_laid_on_white_before_the_crop():
    clear, stored = Image.new("RGBA", (100, 70)), io.BytesIO()
    clear.save(stored, format="PNG")
    assert (decode(stored.getvalue(), 3, 32, ADM) == 255).all()
