import io

import numpy as np
import pytest
from PIL import Image

from hpcddm.evaluation.report import image_grids


def images(count, size=28, channels=1):
    return np.random.default_rng(0).integers(0, 256, (count, size, size, channels), dtype=np.uint8)


@pytest.mark.parametrize(("channels", "mode"), [(1, "LA"), (3, "RGBA")])
@pytest.mark.parametrize("scale", [1, 3])
def test_grid_places_every_pixel(channels, mode, scale):
    given = images(5, size=6, channels=channels)
    picture = image_grids.grid(given, columns=3, scale=scale)
    assert (picture.mode, picture.size) == (mode, (20 * scale, 13 * scale))
    seen = np.asarray(picture)[::scale, ::scale]
    np.testing.assert_array_equal(np.asarray(picture), seen.repeat(scale, axis=0).repeat(scale, axis=1))
    for number, image in enumerate(given):
        top, left = number // 3 * 7, number % 3 * 7
        np.testing.assert_array_equal(seen[top : top + 6, left : left + 6, :-1], image)
        assert (seen[top : top + 6, left : left + 6, -1] == 255).all()


def test_a_grid_has_no_more_columns_than_images_and_needs_an_image():
    assert image_grids.grid(images(2), columns=8, scale=1).size == (57, 28)
    with pytest.raises(ValueError, match="at least one image"):
        image_grids.grid(images(0), columns=8)


def test_png_holds_the_picture_and_is_reproducible():
    picture = image_grids.grid(images(4, channels=3), columns=2)
    data = image_grids.png_bytes(picture)
    assert data == image_grids.png_bytes(picture)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(picture))
