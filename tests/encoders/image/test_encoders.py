"""What every encoder of images promises, whichever it is."""

from types import SimpleNamespace

import numpy as np
import pytest

from hpcddm.config import variants
from hpcddm.config.image_encoders import ImageEncoderSettings, SampleEncoderSettings
from hpcddm.encoders.image.base import ImageEncoder
from tests.encoders.networks import SAVED, with_packages

SHAPES = [(28, 28, 1), (28, 28, 3), (64, 64, 3), (96, 96, 1), (200, 200, 3)]


def images(count, shape):
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


@pytest.fixture(params=with_packages(variants.list_variants("encoders/image", ImageEncoderSettings)), scope="module")
def encoder(request, fetched, tiny):
    """The settings and the function of one encoder."""
    if request.param in SAVED:
        experiment = tiny(request.param)
    else:
        fetched("image", request.param)
        experiment = variants.settings_class("encoders/image", request.param)(name=request.param)
    return experiment, variants.create(ImageEncoder, experiment).encode


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_images_of_any_size_and_colour_become_as_many_values_as_it_says(encoder, shape):
    settings, encode = encoder
    features = encode(images(3, shape))
    data = SimpleNamespace(image_size=shape[0], channels=shape[2])
    assert features.dtype == np.float32 and features.shape == (3, settings.dimensions(data))
    assert np.isfinite(features).all() and np.ptp(features, axis=0).max() > 0


def test_the_same_images_give_the_same_bits(encoder):
    _, encode = encoder
    np.testing.assert_array_equal(encode(images(70, (28, 28, 1))), encode(images(70, (28, 28, 1))))


def test_an_image_is_encoded_as_itself_whatever_stands_beside_it(encoder):
    _, encode = encoder
    together, alone = encode(images(70, (28, 28, 3))), encode(images(70, (28, 28, 3))[66:67])
    np.testing.assert_allclose(together[66:67], alone, atol=1e-4)


def test_grey_is_the_colour_with_three_equal_bands(encoder):
    _, encode = encoder
    grey = images(4, (28, 28, 1))
    one, three = encode(grey), encode(grey.repeat(3, axis=3))
    np.testing.assert_allclose(three.reshape(4, -1, one.shape[1]).mean(axis=1), one, atol=1e-4)


@pytest.mark.usefixtures("load_variants")
def test_an_encoder_that_needs_more_of_samples_than_their_images_is_none_of_images():
    of_samples, of_images = (
        variants.list_variants("encoders/image", base) for base in (SampleEncoderSettings, ImageEncoderSettings)
    )
    assert set(of_samples) - set(of_images) == {"synthetic_load"}
