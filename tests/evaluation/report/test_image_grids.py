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


def test_gaps_and_missing_places_are_transparent():
    opacity = np.asarray(image_grids.grid(images(5, size=6), columns=3, scale=2))[..., -1]
    assert not any(gap.any() for gap in (opacity[12:14], opacity[:, 12:14], opacity[14:, 28:]))
    assert (opacity == 255).sum() == 5 * 12 * 12


@pytest.mark.parametrize(("size", "factor"), [(28, 3), (64, 1), (256, 1)])
def test_small_images_are_enlarged_unless_told_otherwise(size, factor):
    assert image_grids.grid(images(1, size=size), columns=8).size == (size * factor, size * factor)


def test_a_grid_has_no_more_columns_than_images_and_needs_an_image():
    assert image_grids.grid(images(2), columns=8, scale=1).size == (57, 28)
    with pytest.raises(ValueError, match="at least one image"):
        image_grids.grid(images(0), columns=8)


def test_enlargement_is_the_largest_that_fits():
    for room in (100, 231, 461, 462, 900):
        factor = image_grids.enlargement(28, 8, room)
        wide, wider = (image_grids.grid(images(8), columns=8, scale=scale).width for scale in (factor, factor + 1))
        assert wider > room and (wide <= room or factor == 1)


def test_shrink_averages_blocks_and_leaves_small_images_alone():
    small = images(2, size=64)
    assert image_grids.shrink(small, 64) is small
    large = images(2, size=8, channels=3)
    shrunk = image_grids.shrink(large, 4)
    assert shrunk.shape == (2, 4, 4, 3) and shrunk[1, 3, 0, 2] == round(large[1, 6:8, 0:2, 2].mean())
    assert all(32 <= image_grids.shrink(images(1, size=size), 64).shape[1] <= 64 for size in (65, 100, 256))


def test_png_holds_the_picture_and_is_reproducible():
    picture = image_grids.grid(images(4, channels=3), columns=2)
    data = image_grids.png_bytes(picture)
    assert data == image_grids.png_bytes(picture)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(picture))
